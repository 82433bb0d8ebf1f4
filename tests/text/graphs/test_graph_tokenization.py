"""The tokenizer in the graph gives what the one in Python gives, to the last code point."""

import json
import random
import sys
import unicodedata

import pytest
from tensorflow.core.protobuf import saved_model_pb2

import tests
from training.backend import tf
from tests import tiers
from text.graphs import packing_graph
from text.graphs.wordpiece_graph import WordPieceGraph
from text.instances import packing
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.word_splitter import is_cjk
from text.tokenizers.wordpiece import WordPiece

GOLDEN = tests.GOLDEN / "tokenization"
# Each two values of two switches meet: rules for a character depend on two at most.
SWITCHES = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False, "split_cjk": False},
    {"do_lower_case": False, "strip_accents": True, "split_cjk": False},
]
# Each alone or beside others is treated in some way of its own.
NASTY = [
    *"aAbzßİıΣσςͅʼ'ʰ.,$^~ \t\n\r\x00\x0b\x1c\x85\u00a0\u2028\u3000\ufeff\u200d\ufffd",
    *"éÉ\u0301\u0316\u0345\u0591\u05bf\u0b3e\u0b4d가각\u1100\u1161\u11a8が\u3099中㐀豈\U00020000",
    *"갂각\u1112\u1175\u11c2\u1176\u11c3\u1113\ua960\ud7cb",
    *"\U0001d165\U0001d16d\u302e\U0001d15e\U00016ff0\u0f71\u0f72½Å\U0001f600\U0010ffff\ue000",
]


def vocabulary(*tokens):
    return Vocabulary([*SPECIAL_TOKENS, *tokens])


def golden_vocabulary(case):
    return Vocabulary.load(str(GOLDEN / f"{case}_vocab.txt"))


def in_graph(tokenizer, directory):
    """strings -> for each its ids, starts and ends, by the graph."""
    graph = WordPieceGraph(tokenizer, str(directory))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(texts):
        return graph.encode_with_offsets(texts)

    def call(texts):
        columns = encode(tf.constant(texts, tf.string))
        return list(zip(*(column.to_list() for column in columns), strict=True))

    return call


def by_python(tokenizer, texts):
    return [tuple(map(list, tokenizer.encode_with_offsets(text))) for text in texts]


def unlike(tokenizer, directory, texts):
    found = in_graph(tokenizer, directory)(texts)
    expected = by_python(tokenizer, texts)
    return [t for t, a, b in zip(texts, found, expected, strict=True) if a != b]


def random_texts(number, seed, *, most=12):
    """Half of any assigned code points, half of the nasty ones."""
    rng = random.Random(seed)
    assigned = [
        chr(point)
        for point in range(sys.maxunicode + 1)
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
    ]
    return [
        "".join(rng.choices(rng.choice((assigned, NASTY)), k=rng.randrange(most)))
        for _ in range(number)
    ]


def test_signatures_share_what_is_traced(tmp_path):
    """And a SavedModel has it once."""
    graph = WordPieceGraph(WordPiece(vocabulary("a")), str(tmp_path))

    def signature(function):
        call = tf.function(lambda texts: function(texts).flat_values, autograph=False)
        return call.get_concrete_function(tf.TensorSpec([None], tf.string))

    signatures = {
        "ids": signature(graph.encode),
        "starts": signature(lambda texts: graph.encode_with_offsets(texts)[1]),
    }
    tf.saved_model.save(graph, str(tmp_path / "saved"), signatures=signatures)
    content = (tmp_path / "saved" / "saved_model.pb").read_bytes()
    [saved] = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    ops = [n.op for f in saved.graph_def.library.function for n in f.node_def]
    assert ops.count("UnicodeDecode") == 1


@pytest.mark.parametrize("case", ["uncased", "cased"])
def test_golden_texts(case, tmp_path):
    lines = (GOLDEN / "texts.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    switches = {"do_lower_case": case == "uncased"}
    assert unlike(WordPiece(golden_vocabulary(case), **switches), tmp_path, texts) == []


@pytest.mark.parametrize("switches", tiers.cases(SWITCHES, SWITCHES[:3:2]), ids=str)
def test_random_strings(switches, tmp_path):
    pieces = [*"abzßσς中가", "##a", "##b", "##σ", "##ς", "##\u0301", "\u302e", "½"]
    texts = random_texts(2_000, seed=len(str(switches)))
    tokenizer = WordPiece(golden_vocabulary("uncased"), **switches)
    assert unlike(tokenizer, tmp_path, texts) == []
    # Of few pieces, so that words are taken apart in many ways.
    tokenizer = WordPiece(vocabulary(*pieces), **switches)
    assert unlike(tokenizer, tmp_path, texts[:500]) == []


@pytest.mark.parametrize("switches", tiers.cases(SWITCHES[:2], SWITCHES[:1]), ids=str)
def test_every_code_point(switches, tmp_path):
    # Of those that Unicode has not assigned, 800,000, every eighth.
    points = [
        p
        for p in range(sys.maxunicode + 1)
        if (kind := unicodedata.category(chr(p))) != "Cs"
        and (kind not in ("Cn", "Co") or is_cjk(chr(p)) or p % 8 == 0)
    ]
    # A vocabulary of what some of them become shows more than [UNK] would.
    tokenizer = WordPiece(vocabulary("a", "b", "ab", "##b", "e", "ㄱ"), **switches)
    texts = [
        " ".join(f"a{chr(p)}b" for p in points[i : i + 4096])
        for i in range(0, len(points), 4096)
    ]
    assert unlike(tokenizer, tmp_path, texts) == []


def test_words_are_taken_apart_as_in_python(tmp_path):
    pieces = ["a", "##a", "##aa", "aaa", "b", "##bbbbbb", "a" * 190]
    tokenizer = WordPiece(vocabulary(*pieces))
    texts = ["a" * n for n in (1, 2, 5, 189, 190, 191, 199, 200, 201, 5000)]
    texts += ["abbbbbb", "abbb", "ab a b", "bba", "aaa" * 60, "", " ", "\x00", "c"]
    assert unlike(tokenizer, tmp_path, texts) == []


def test_marks_are_put_in_order_as_in_python(tmp_path):
    """Those that accent stripping leaves; canonical order changes the text."""
    marks = "\U0001d16d\U0001d165"
    assert unicodedata.normalize("NFD", f"x{marks}") == "x\U0001d165\U0001d16d"
    pieces = ["x", "##\U0001d165\U0001d16d", "##\U0001d16d", "##\U0001d165"]
    tokenizer = WordPiece(vocabulary(*pieces))
    # U+0B3F is dropped, and marks do not move past it; nor from one text to the next.
    texts = [f"x{marks}", f"x{marks[0]}\u0b3f{marks[1]}", f"x{marks[0]}", marks[1]]
    assert unlike(tokenizer, tmp_path, texts) == []


def test_letters_of_hangul_are_composed_as_in_python(tmp_path):
    """Of a vocabulary that has them, as that of the random strings does not."""
    syllables = [chr(point) for point in range(0xAC00, 0xD7A4, 29)]
    syllables += ["가", "각", "갂", "갛", "힣", "까"]
    letters = ["\u1100", "\u1161", "\u11a7", "\u11a8", "\u11c2", "\u11c3"]
    tokens = [*syllables, *letters]
    tokenizer = WordPiece(
        vocabulary(*tokens, *(f"##{token}" for token in tokens)), do_lower_case=False
    )
    apart = [unicodedata.normalize("NFD", syllable) for syllable in syllables]
    # First letters, syllables without and with a last one, each before every other.
    pairs = [a + b for a in ["가", "각", *letters] for b in ["가", "\u1161", *letters]]
    texts = [*apart, *pairs, "".join(apart), " ".join(apart), *letters]
    assert unlike(tokenizer, tmp_path, texts) == []
    assert tokenizer.tokenize(apart[5]) == [syllables[5]]


def test_final_sigma_is_no_exception(tmp_path):
    words = "Σ ΟΔΟΣ ΟΔΟΣ. ΟΔΟΣ.Α ΟΔ'Σ".split()
    words += ["Α\u0301Σ\u0301", "ΑΣ\u200dΒ", "ΑΣ\0Β"]
    tokenizer = WordPiece(vocabulary("οδος", "οδοσ", "α", "##ς", "##σ", "##σβ", "##ςβ"))
    assert tokenizer.tokenize("ΟΔΟΣ ΟΔΟΣ.Α") == ["οδος", "[UNK]", "α"][:1] + (
        tokenizer.tokenize("οδοσ") + ["[UNK]", "α"]
    )
    assert unlike(tokenizer, tmp_path, [*words, " ".join(words)]) == []


def test_repeated_and_empty_lines(tmp_path):
    tokenizer = WordPiece(vocabulary("a", "b", "a", "", "", "[line5]"))
    graph = WordPieceGraph(tokenizer, str(tmp_path))
    assert graph.encode(tf.constant(["a b"])).to_list() == [[7, 6]]
    ids = tf.constant([5, 6, 7, 8, 10, 99])
    spelled = [b"a", b"b", b"a", b"", b"[line5]", b""]
    assert graph.tokens(ids).numpy().tolist() == spelled


def test_no_utf_8_counts_as_the_replacement_character(tmp_path):
    tokenizer = WordPiece(vocabulary("a", "b", "##b"))
    (replaced,) = by_python(tokenizer, ["a \0\0\0 b"])
    assert in_graph(tokenizer, tmp_path)([b"a\xffb", b"\xc3", b"a \xed\xa0\x80 b"]) == [
        ([5, 7], [0, 2], [1, 3]),
        ([], [], []),
        replaced,
    ]


def test_nothing_and_long_texts(tmp_path):
    call = in_graph(WordPiece(vocabulary("a", "b")), tmp_path)
    assert call([]) == []
    assert call([""]) == [([], [], [])]
    million = "a " * (1 << 19)
    ((ids, starts, ends),) = call([million])
    assert ids == [5] * (1 << 19) and starts[-1] == len(million) - 2
    assert call(["b" * (1 << 20)]) == [([1], [0], [1 << 20])]


@pytest.mark.parametrize("max_seq_length", [3, 4, 9, 40])
def test_rows_are_packed_as_in_python(max_seq_length, tmp_path):
    tokenizer = WordPiece(vocabulary("a"))
    graph = WordPieceGraph(tokenizer, str(tmp_path))
    rng = random.Random(max_seq_length)
    pairs = [[[7] * rng.randrange(30) for _ in "ab"] for _ in range(60)]
    for has_b in (True, False):
        a, b = (tf.ragged.constant(side, tf.int32) for side in zip(*pairs, strict=True))
        packed = packing_graph.pack(graph, a, b if has_b else None, max_seq_length)
        for row, (first, second) in enumerate(pairs):
            ids, segments, _ = packing.pack(
                tokenizer.vocabulary, first, second if has_b else None, max_seq_length
            )
            width = packed["input_ids"].shape[1]
            padding = [0] * (width - len(ids))
            rows = ids, segments, [1] * len(ids)
            names = "input_ids", "segment_ids", "input_mask"
            found = {k: v[row].numpy().tolist() for k, v in packed.items()}
            assert found == {k: v + padding for k, v in zip(names, rows, strict=True)}
    none = graph.encode(tf.constant([], tf.string))
    empty = packing_graph.pack(graph, none, none, max_seq_length)
    assert empty["input_ids"].shape[0] == 0
