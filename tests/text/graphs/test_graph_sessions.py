"""Tokenizers in SavedModels do the same in Python and in a server."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import tests
from family.elmo import tokenizer as whole_words
from tests import graph_session, tiers
from text.graphs.lookup import graph_of, libraries_of
from text.tokenizers import wordpiece
from text.tokenizers.learning import sentencepiece_learning
from text.tokenizers.sentencepiece import FAMILIES
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary

TEXTS = ["Naïve cats, dogs?", "", "1,000 한국어 <S> a", "x" * 300, "e\u0301 é cats"]


def of_file(*path, **flags):
    return TokenizerOptions(**flags).load_tokenizer(str(tests.GOLDEN.joinpath(*path)))


def of_words(*words):
    return wordpiece.WordPiece(Vocabulary([*SPECIAL_TOKENS, *words]))


def of_t5(folder):
    content = sentencepiece_learning.learn(
        iter(TEXTS * 9),
        FAMILIES["t5"].symbols,
        vocab_size=140,
        character_coverage=1.0,
        input_sentence_size=1000,
    )
    (folder / "t5.model").write_bytes(content)
    return TokenizerOptions().load_tokenizer(str(folder / "t5.model"))


def of_whole_words(folder):
    words = "".join(f"{word}\n" for word in [*whole_words.SPECIAL, "é", "cats,", "a"])
    (folder / "words.txt").write_text(words)
    return TokenizerOptions().load_tokenizer(str(folder))


KINDS = {
    "wordpiece": lambda folder: of_file(
        "squad", "uncased_vocab.txt"
    ),  # has repetitions
    "short wordpiece": lambda folder: of_words("cats", "a", "##s", "x"),
    "byte-level BPE": lambda folder: of_file("byte_bpe"),
    "GPT": lambda folder: of_file("gpt_bpe", "encoder_bpe_40000.json"),
    "ALBERT": lambda folder: of_file("sentencepiece", "tiny.model"),
    "XLNet": lambda folder: of_file("sentencepiece", "xlnet.model"),
    "T5": of_t5,
    "whole words": of_whole_words,
}


def saved(tokenizer, folder):
    """The path of a SavedModel: texts to ids and tokens."""
    (folder / "files").mkdir(parents=True)
    module = tf.Module()
    module.tokenizer = graph_of(tokenizer, str(folder / "files"))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "texts")])
    def encode(texts):
        ids = module.tokenizer.encode(texts).to_tensor(0)
        return {"ids": ids, "tokens": module.tokenizer.tokens(ids)}

    tf.saved_model.save(module, str(folder / "model"), signatures=encode)
    return str(folder / "model")


def in_python(tokenizer):
    rows = list(map(tokenizer.encode, TEXTS))
    ids = np.zeros([len(rows), max(map(len, rows))], np.int32)
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = found
    tokens = [[tokenizer.vocabulary.tokens[id].encode() for id in row] for row in ids]
    return {"ids": ids.tolist(), "tokens": tokens}


def by_functions(path):
    serve = tf.saved_model.load(path).signatures["serving_default"]
    outputs = serve(texts=tf.constant(TEXTS))
    return {name: value.numpy().tolist() for name, value in outputs.items()}


def by_session(path, packages=()):
    with graph_session.loaded(path, packages) as session:
        outputs = session.run("serving_default", {"texts": np.array(TEXTS)})
    return {name: value.tolist() for name, value in outputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", tiers.cases(KINDS, KINDS.keys() - {"short wordpiece"}))
def test_every_kind_in_python_and_in_a_server(kind, tmp_path):
    tokenizer = KINDS[kind](tmp_path)
    path = saved(tokenizer, tmp_path / "saved")
    expected = in_python(tokenizer)
    assert by_functions(path) == expected
    assert by_session(path, libraries_of(tokenizer)) == expected


@pytest.mark.slow
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
