"""T5's SentencePiece: its own rules, its sentinels, and ids as text again."""

import json
import random

import pytest

import build_vocab
import tests
from training.backend import tf
from errors import UserError
from tests import jobs
from tests.pieces import NASTY
from text.graphs.graph_tokenizer import GraphTokenizer
from text.graphs.lookup import graph_of
from text.instances import packing
from text.tokenizers import sentencepiece_files
from text.tokenizers.table import TOKENIZERS, TokenizerOptions
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece

CASES = json.loads((tests.GOLDEN / "sentencepiece" / "cases.json").read_text("utf-8"))
TEXTS = [case["text"] for case in CASES["tiny"]]
SENTINELS = ["<extra_id_0> and <extra_id_99>,\n <extra_id_7>", "no<extra_id_0>"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5")
    (folder / "text.txt").write_text("\n".join(TEXTS * 3), "utf-8")
    flags = {
        "input_file": [str(folder / "text.txt")],
        "output_file": str(folder / "spiece.model"),
        "vocab_size": 300,
        "special_tokens": "t5",
        "character_coverage": 0.99,
        "heldout_share": 0.0,
    }
    jobs.run(build_vocab, flags)
    return TokenizerOptions().load_tokenizer(flags["output_file"])


@pytest.fixture(scope="module")
def graph(tokenizer, tmp_path_factory):
    return graph_of(tokenizer, str(tmp_path_factory.mktemp("graph")))


@pytest.fixture(scope="module")
def wordpiece():
    tokens = "it ' s [unused0] a re ##al token ##s . [unused1] [unused2]".split()
    return WordPiece(Vocabulary([*SPECIAL_TOKENS, *tokens]))


@pytest.fixture(scope="module")
def released(tokenizer):
    """The library with the sentinels, as seqio adds them."""
    library = sentencepiece_files.library()
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.model)
    for number in reversed(range(100)):
        kind = sentencepiece_model_pb2.ModelProto.SentencePiece.USER_DEFINED
        model.pieces.add(piece=f"▁<extra_id_{number}>", score=0.0, type=kind)
    content = model.SerializeToString()
    return library.SentencePieceProcessor(model_proto=content)


def nasty(number, seed):
    rng = random.Random(seed)
    parts = [*NASTY, "<extra_id_3>", " ", "Word", "ÉCOLE", "x"]
    for _ in range(number):
        yield "".join(rng.choices(parts, k=rng.randrange(12)))


def rows(vocabulary, number, seed):
    """Rows of ids, the special ones more often, and two that no token has."""
    rng = random.Random(seed)
    ids = [*range(len(vocabulary) + 2), *vocabulary.special_ids.values()]
    ids += [vocabulary.end_id, vocabulary.unk_id] * 20
    return [rng.choices(ids, k=9) for _ in range(number)]


def test_special_tokens_are_those_of_t5(tokenizer):
    vocabulary = tokenizer.vocabulary
    assert (vocabulary.pad_id, vocabulary.end_id, vocabulary.unk_id) == (0, 1, 2)
    last = len(vocabulary) - 1
    assert vocabulary.sentinels == list(range(last, last - 100, -1))
    assert TOKENIZERS["sentencepiece"].parse(tokenizer.model) == vocabulary.tokens
    assert tokenizer.settings == {"vocab_sha256": vocabulary.digest}


def test_ids_and_texts_are_those_of_the_library(tokenizer, released):
    for text in [*TEXTS, *SENTINELS, *nasty(300, seed=1)]:
        assert tokenizer.encode(text) == released.encode(text), text
    vocabulary = tokenizer.vocabulary
    for row in rows(vocabulary, 500, seed=2):
        ids = [id if id < len(vocabulary) else vocabulary.unk_id for id in row]
        ids = ids[: ids.index(1)] if 1 in ids else ids
        assert vocabulary.text_of(row) == released.decode(ids), row


def test_text_is_kept_and_sentinels_are_one_piece(tokenizer):
    text = "Hello <extra_id_0> aé A"
    ids = tokenizer.encode(text)
    assert ids.count(tokenizer.vocabulary.sentinels[0]) == 1
    assert tokenizer.vocabulary.text_of([*ids, 1, *ids]) == text
    flags = {"do_lower_case": False, "strip_accents": False}
    other = TokenizerOptions(**flags).load_tokenizer(tokenizer.vocabulary.path)
    assert other.encode(text) == ids


def test_a_graph_gives_the_same(tokenizer, graph):
    texts = [*TEXTS[:40], *SENTINELS, *nasty(400, seed=3), ""]
    found = graph.encode_with_offsets(tf.constant(texts))
    found = [column.to_list() for column in found]
    for number, text in enumerate(texts):
        expected = tokenizer.encode_with_offsets(text)
        assert tuple(column[number] for column in found) == expected, text
        assert expected[0] == tokenizer.encode(text)


class Writer(GraphTokenizer):
    """Only writes, and so needs no tables for reading, which take seconds to make."""

    tokens = None

    def pieces_with_offsets(self, texts):
        raise NotImplementedError


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_a_graph_writes_the_same_text(kind, tokenizer, wordpiece):
    tokenizer = {"sentencepiece": tokenizer, "wordpiece": wordpiece}[kind]
    vocabulary, graph = tokenizer.vocabulary, Writer(tokenizer.vocabulary)
    ids = rows(vocabulary, 400, seed=4)
    found = tf.function(graph.text_of)(tf.constant(ids))
    expected = [vocabulary.text_of(row) for row in ids]
    assert [text.decode() for text in found.numpy()] == expected
    assert graph.text_of(tf.zeros([0, 3], tf.int32)).shape == [0]


def test_wordpieces_are_joined_without_regard_to_punctuation(wordpiece):
    vocabulary = wordpiece.vocabulary
    ids = [*wordpiece.encode("It's a real token."), vocabulary.sep_id, 5]
    assert vocabulary.text_of(ids) == "it ' s a real token ."
    assert vocabulary.text_of([vocabulary.cls_id, 5, 0, 1]) == "it [UNK]"
    names = [vocabulary.tokens[id] for id in vocabulary.sentinels]
    assert names == ["[unused2]", "[unused1]", "[unused0]"]


def test_what_a_vocabulary_lacks_is_said(tokenizer):
    with pytest.raises(UserError, match="no tokens that can stand for .* --num_unused"):
        Vocabulary([*SPECIAL_TOKENS, "a"]).sentinels  # noqa: B018
    with pytest.raises(UserError, match="spiece.model: has no token at the start of a"):
        tokenizer.vocabulary.cls_id  # noqa: B018
    # Rows begin with text.
    rows = packing.pack(tokenizer.vocabulary, [5], [6, 7], 10)
    assert rows == ([5, 1, 6, 7, 1], [0, 0, 1, 1, 1], False)
