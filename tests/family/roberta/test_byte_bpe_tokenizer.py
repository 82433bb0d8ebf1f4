"""Byte-level BPE equal to RoBERTa's, in Python and in a graph, on text of any kind."""

import gzip
import json
import random
import shutil
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

import tests
from errors import UserError
from family.roberta.tokenizer import SPECIAL
from text.graphs import mask_tokens_graph, packing_graph
from text.graphs.lookup import graph_of
from text.instances import packing
from text.tasks import mask_tokens
from text.tokenizers import bpe
from text.tokenizers.table import OpenVocabulary, TokenizerOptions

GOLDEN = tests.GOLDEN / "byte_bpe"
CASES = json.loads(gzip.decompress((GOLDEN / "cases.json.gz").read_bytes()))
# What the rules of the graph look at, and what they must not stumble over.
TEXTS = st.lists(
    st.sampled_from([*"ab'strevml  \n\t.1²가é", "'s", "'ll", " '", "\u0301", "😀"])
    | st.characters(exclude_categories=("Cs",)),
    max_size=40,
).map("".join)


@pytest.fixture(scope="module")
def tokenizer():
    return TokenizerOptions().load_tokenizer(str(GOLDEN))


def in_graph(tokenizer, folder):
    graph = graph_of(tokenizer, str(folder))
    return tf.function(
        graph.encode_with_offsets,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    ), graph


@pytest.fixture(scope="module")
def graph(tokenizer, tmp_path_factory):
    return in_graph(tokenizer, tmp_path_factory.mktemp("graph"))


def check_graph(tokenizer, encode, texts):
    found = [column.to_list() for column in encode(tf.constant(texts, tf.string))]
    for number, text in enumerate(texts):
        expected = tokenizer.encode_with_offsets(text)
        assert tuple(column[number] for column in found) == expected, text


# --- The golden texts ----------------------------------------------------------------


@pytest.mark.parametrize("path", [GOLDEN, GOLDEN / "vocab.json"], ids=lambda p: p.name)
def test_texts_have_the_ids_and_offsets_of_fairseq_and_hugging_face(path):
    tokenizer = TokenizerOptions().load_tokenizer(str(path))
    assert len(CASES["texts"]) == 300
    for case in CASES["texts"]:
        ids, starts, ends = tokenizer.encode_with_offsets(case["text"])
        assert ids == tokenizer.encode(case["text"]) == case["ids"]
        offsets = [list(span) for span in zip(starts, ends, strict=True)]
        assert offsets == case.get("offsets", offsets)


def test_a_graph_gives_the_same(tokenizer, graph):
    check_graph(tokenizer, graph[0], [case["text"] for case in CASES["texts"]])
    for texts in ([], [""], ["", "a", ""]):
        check_graph(tokenizer, graph[0], texts)


def test_white_space_before_a_mask_belongs_to_it(tokenizer, graph):
    cases = [case for case in CASES["texts"] if "ids_with_mask" in case]
    assert len(cases) > 5
    texts = [case["text"] for case in cases] + ["a\u3000\n<mask>  b ", "<mask>"]
    encoded = [mask_tokens.encode(tokenizer, text) for text in texts]
    for case, ids in zip(cases, encoded, strict=False):
        assert ids == case["ids_with_mask"]
    mask = tokenizer.vocabulary.mask_id
    a, b = tokenizer.encode("a"), tokenizer.encode("  b ")
    assert encoded[-2:] == [[*a, mask, *b], [mask]]
    found = mask_tokens_graph.encode(graph[1], tf.constant(texts))
    assert found.to_list() == encoded


def test_pairs_have_two_separators_and_no_segments(tokenizer, graph):
    pairs = CASES["pairs"]
    sides = [[tokenizer.encode(pair[x]) for pair in pairs] for x in "ab"]
    for length, name in ((500, "ids"), (16, "ids_cut_16")):
        expected = [pair[name] for pair in pairs]
        for a, b, ids in zip(*sides, expected, strict=True):
            row = packing.pack(tokenizer.vocabulary, a, b, length)
            assert row == (ids, [0] * len(ids), length == 16 and len(a + b) > 12)
        ragged = (tf.ragged.constant(side, tf.int32, 1) for side in sides)
        batch = packing_graph.pack(graph[1], *ragged, length)
        longest = max(map(len, expected))
        assert batch["input_ids"].numpy().tolist() == [
            ids + [tokenizer.vocabulary.pad_id] * (longest - len(ids))
            for ids in expected
        ]
        assert batch["input_mask"].numpy().sum(1).tolist() == list(map(len, expected))
        assert not batch["segment_ids"].numpy().any()


def test_one_text_stands_between_two_special_tokens(tokenizer, graph):
    ids = tokenizer.encode("The simple form")
    row = packing.pack(tokenizer.vocabulary, ids, None, 16)
    assert row == ([0, *ids, 2], [0] * (len(ids) + 2), False)
    batch = packing_graph.pack(graph[1], tf.ragged.constant([ids], tf.int32), None, 16)
    assert batch["input_ids"].numpy().tolist() == [row[0]]
    assert not batch["segment_ids"].numpy().any()


def test_a_word_of_a_sentence_begins_with_its_space(tokenizer):
    cases = [c for c in CASES["add_prefix_space"] if c["text"].strip() == c["text"]]
    cases = [c for c in cases if c["text"] and not {*"<>"} <= {*c["text"]}]
    assert len(cases) > 60
    for case in cases:
        assert tokenizer.encode(f" {case['text']}") == case["hf_ids"]


# --- Any text ------------------------------------------------------------------------


@given(texts=st.lists(TEXTS, max_size=4))
def test_any_text_comes_back_and_a_graph_gives_the_same(tokenizer, graph, texts):
    byte_of = {c: byte for byte, c in enumerate(bpe.byte_characters())}
    for text in texts:
        ids, starts, ends = tokenizer.encode_with_offsets(text)
        spelled = "".join(tokenizer.vocabulary.tokens[id] for id in ids)
        assert bytes(byte_of[c] for c in spelled).decode() == text
        assert starts == sorted(starts) and ends == sorted(ends)
        for id, start, end in zip(ids, starts, ends, strict=True):
            assert 0 <= start <= end <= len(text)
            # A piece that is text by itself is where it says.
            shown = tokenizer.vocabulary.texts[id]
            if shown.isascii() and shown.isalnum():
                assert text[start:end] == shown
    check_graph(tokenizer, graph[0], texts)


@pytest.fixture(scope="module")
def joining(tmp_path_factory):
    """A vocabulary that merges wherever a word goes on, so that ids show all words."""
    merges = [f"{x} {y}" for x in "a1.st'\u0120" for y in bpe.byte_characters()]
    folder = write(tmp_path_factory.mktemp("joining"), merges)
    tokenizer = TokenizerOptions().load_tokenizer(str(folder))
    (folder / "graph").mkdir()
    return tokenizer, in_graph(tokenizer, folder / "graph")[0]


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_words_begin_at_the_same_places_in_a_graph(joining, texts):
    check_graph(*joining, texts)


def test_contractions_and_runs_of_spaces_are_words(joining):
    rng = random.Random(0)
    parts = [*"ast1. \n'", "'s", "'re", "'ll", "'d", "\u3000", "\u00e9", "  "]
    texts = ["".join(rng.choices(parts, k=rng.randrange(12))) for _ in range(3000)]
    check_graph(*joining, texts)
    for text in ("sell'", "sa'", "reel'", "'"):  # no contraction with its own beginning
        check_graph(*joining, [text])


def test_characters_of_all_kinds_are_the_same_in_a_graph(joining):
    kinds = [unicodedata.category(chr(point)) for point in range(0x40100)]
    points = [p for p, kind in enumerate(kinds) if p < 256 or kind != kinds[p - 1]]
    points = [p for p in points if kinds[p] != "Cs"]
    assert len(points) > 3000
    texts = [f"a{c} 1{c} .{c} {c}a'{c}" for c in map(chr, points)]
    check_graph(*joining, texts)


def test_long_words_and_lone_surrogates(tokenizer, graph):
    rng = random.Random(0)
    texts = ["a" * 3000, "".join(rng.choices("日本語中文the", k=1000))]
    check_graph(tokenizer, graph[0], texts)
    assert tokenizer.encode_with_offsets("a\ud800b") == tokenizer.encode_with_offsets(
        "a\ufffdb"
    )
    invalid = graph[1].encode(tf.constant([b"a\xffb"])).to_list()
    assert invalid == [tokenizer.encode("a\ufffdb")]


def write(folder, merges, tokens=()):
    """A vocabulary of the special tokens, the bytes and what merges make."""
    pieces = ["".join(pair.split(" ")) for pair in merges]
    tokens = [*SPECIAL.names, *bpe.byte_characters(), *pieces, *tokens]
    ids = {token: id for id, token in enumerate(dict.fromkeys(tokens))}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    return folder


@pytest.mark.parametrize(
    "merges",
    [
        [],
        ["a a", "aa a"],
        # Not what learning gives: a late merge makes an earlier one possible.
        ["abc a", "a b", "ab c", "b c", "a bc", "c a"],
        ["bc b", "b c", "a bc", "ca b", "c a", "abc abc"],
    ],
)
def test_a_graph_merges_in_the_order_of_any_file(tmp_path, merges):
    tokenizer = TokenizerOptions().load_tokenizer(str(write(tmp_path, merges)))
    rng = random.Random(1)
    texts = ["".join(rng.choices("abc ", k=rng.randrange(30))) for _ in range(400)]
    (tmp_path / "graph").mkdir()
    check_graph(tokenizer, in_graph(tokenizer, tmp_path / "graph")[0], texts)


def test_words_are_what_spaces_separate(tokenizer):
    packed, starts = tokenizer.encode_words("Hello, world of 한국!")
    ids = np.frombuffer(packed, tokenizer.vocabulary.id_type).tolist()
    assert ids == tokenizer.encode("Hello, world of 한국!")
    assert packed == tokenizer.encode_packed("Hello, world of 한국!")
    pieces = [tokenizer.vocabulary.tokens[id] for id in ids]
    words = "".join(f"|{p}" if s else p for p, s in zip(pieces, starts, strict=True))
    assert words.count("|") == 4
    assert [w[:1] for w in words.split("|")[2:]] == ["\u0120"] * 3
    assert tokenizer.encode_words("") == (b"", b"")


# --- Files ---------------------------------------------------------------------------


def damaged(name, change):
    def damage(folder):
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def changed(**changes):
    """Gives tokens of vocab.json other ids; None removes one."""

    def change(content):
        ids = json.loads(content) | changes
        return json.dumps({k: v for k, v in ids.items() if v is not None}).encode()

    return damaged("vocab.json", change)


def without(token):
    """Removes a token and gives its id to the last one but <mask>."""

    def change(content):
        ids = json.loads(content)
        tokens = sorted(ids, key=ids.get)
        tokens.remove(token)
        return json.dumps({t: i for i, t in enumerate(tokens)}).encode()

    return damaged("vocab.json", change)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda f: (f / "merges.txt").unlink(),
            r"merges.txt: no such file; .* two files",
        ),
        (
            lambda f: (f / "vocab.json").unlink(),
            "contains no vocab.txt or .*vocab.json",
        ),
        (
            damaged("merges.txt", lambda b: b + b"th e r\n"),
            r":646: 'th e r' is not two",
        ),
        (
            damaged("merges.txt", lambda b: b + b"the\n"),
            r":646: 'the' is not two pieces",
        ),
        (damaged("merges.txt", lambda b: b + b"q zz\n"), r":646: 'zz' is not in vocab"),
        (damaged("merges.txt", lambda b: b + b"q z\n"), r":646: 'qz' is not in vocab"),
        (damaged("merges.txt", lambda b: b + b"- -\n"), r":646: '- -' is repeated"),
        (damaged("merges.txt", lambda b: b + b"\xff"), r"merges.txt: is not UTF-8"),
        (damaged("vocab.json", lambda b: b[:-9]), r"vocab.json: not a vocabulary: "),
        (damaged("vocab.json", lambda b: b"[1]"), r"not an object of tokens and ids"),
        (damaged("vocab.json", lambda b: b"\xff"), r"vocab.json: not a vocabulary: "),
        (changed(the=0), r"vocab.json: .* have the ids 0 to|the same id, 0"),
        (changed(the=9999), r"'the' has the id 9999; 906 tokens have the ids 0 to 905"),
        (changed(the="x"), r"'the' has the id 'x'"),
        (without("<s>"), r"vocab.json: has no token <s>; RoBERTa's .* GPT-2's"),
        (without("!"), r"no token for 1 of the 256 bytes, such as '!' for 0x21"),
    ],
)
def test_a_bad_vocabulary_is_refused_in_one_line(tmp_path, damage, said):
    folder = tmp_path / "vocabulary"
    shutil.copytree(GOLDEN, folder)
    damage(folder)
    with pytest.raises(UserError, match=said):
        TokenizerOptions().load_tokenizer(str(folder))


def test_flags_of_wordpiece_do_not_apply_and_none_is_needed(tokenizer):
    text = "ÀÉ 가 漢字 The"
    for flags in ({}, {"do_lower_case": False}, {"strip_accents": True}):
        same = TokenizerOptions(**flags).load_tokenizer(str(GOLDEN))
        assert same.encode(text) == tokenizer.encode(text)
        assert (
            same.settings
            == tokenizer.settings
            == {"vocab_sha256": tokenizer.vocabulary.digest}
        )


def test_its_files_make_it_again(tokenizer, tmp_path):
    for name, content in tokenizer.files.items():
        (tmp_path / name).write_bytes(content)
    assert OpenVocabulary.open(str(tmp_path)).path == str(tmp_path / "vocab.json")
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert again.settings == tokenizer.settings
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    other = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert other.settings != tokenizer.settings


def test_the_two_files_can_be_made_from_tokenizer_json(tmp_path):
    """As docs/family/roberta.md says."""
    ours = TokenizerOptions().load_tokenizer(str(GOLDEN))
    files = (str(GOLDEN / name) for name in ("vocab.json", "merges.txt"))
    model = tokenizers.models.BPE.from_file(*files)
    path = str(tmp_path / "tokenizer.json")
    tokenizers.Tokenizer(model).save(path)
    tokenizers.Tokenizer.from_file(path).model.save(str(tmp_path))
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    text = "Hello world, it's 서울."
    assert again.encode(text) == ours.encode(text)
