"""Texts of many languages, and a vocabulary of a few words."""

import json

import tests
from tests import tiny

GOLDEN = tests.GOLDEN
TINY = tiny.config(vocab_size=80, max_position_embeddings=32)


def write_words(folder):
    pieces = "the a cat dog sat ran on under mat hat red blue ##s ##ed é 東 σ ς".split()
    letters = [*"abcdefghijklmnopqrstuvwxyz", *map("##{}".format, "abcdeinorst")]
    tiny.write(folder, [*pieces, *letters], TINY)


def real_texts(number):
    """Of many languages: the golden texts of the tokenizer."""
    lines = (GOLDEN / "tokenization" / "texts.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[:number]]
