"""Tokenizers in SavedModels do the same in Python and in a server."""

import functools
import gc

import numpy as np
import pytest

import tests
from tests import graph_session, tiers
from tests.saved_tokenizers import TEXTS, by_functions, check_server, in_python, saved
from text.tokenizers import wordpiece
from text.tokenizers.learning import sentencepiece_learning
from text.tokenizers.sentencepiece import FAMILIES
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary


def of_file(*path, **flags):
    return TokenizerOptions(**flags).load_tokenizer(str(tests.GOLDEN.joinpath(*path)))


def of_words(*words):
    return wordpiece.WordPiece(Vocabulary([*SPECIAL_TOKENS, *words]))


def of_pieces(family, folder):
    content = sentencepiece_learning.learn(
        iter(TEXTS * 9),
        FAMILIES[family].symbols,
        vocab_size=140,
        character_coverage=1.0,
        input_sentence_size=1000,
    )
    (folder / "own.model").write_bytes(content)
    return TokenizerOptions().load_tokenizer(str(folder / "own.model"))


KINDS = {
    # It has repetitions.
    "wordpiece": lambda folder: of_file("squad", "uncased_vocab.txt"),
    "short wordpiece": lambda folder: of_words("cats", "a", "##s", "x"),
} | {family: functools.partial(of_pieces, family) for family in FAMILIES}


@pytest.mark.parametrize("kind", tiers.cases(KINDS, ["wordpiece", "XLNet", "T5"]))
def test_every_kind_in_python_and_in_a_server(kind, tmp_path):
    check_server(KINDS[kind](tmp_path), tmp_path)


@pytest.mark.exhaustive
def test_models_of_different_vocabularies_keep_apart_in_one_process(tmp_path):
    some, others = of_words("cats", "a", "é"), of_words("a", "e", "cats")
    paths = [saved(x, tmp_path / f"{i}") for i, x in enumerate([some, others, some])]
    for path, tokenizer in zip(paths, (some, others, some), strict=True):
        assert by_functions(path) == in_python(tokenizer)
        gc.collect()  # the first one's table is also the last one's
    with graph_session.loaded(paths[0]), graph_session.loaded(paths[1]) as session:
        outputs = session.run("serving_default", {"texts": np.array(TEXTS)})
    assert outputs["ids"].tolist() == in_python(others)["ids"]
