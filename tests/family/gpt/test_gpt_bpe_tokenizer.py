"""GPT-1's BPE equal to Hugging Face's on golden texts, in Python and as a graph."""

import gzip
import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tests
from errors import UserError
from family.gpt.tokenizer import GptBpe
from files.folder_files import FolderFiles
from tests.learning import TEXT, check_same_bytes, learn
from tests.saved_tokenizers import check_server
from tests.tokenizer_json import (
    bert,
    bpe,
    changed,
    check_same_files,
    check_written,
    write,
)
from text.graphs import packing_graph
from text.graphs.lookup import graph_of
from text.instances import packing
from text.tokenizers.table import (
    TOKENIZERS,
    OpenVocabulary,
    TokenizerOptions,
    load_vocabulary,
)

GOLDEN = tests.GOLDEN / "gpt_bpe"
FILE = GOLDEN / "encoder_bpe_40000.json"
CASES = json.loads(gzip.decompress((GOLDEN / "cases.json.gz").read_bytes()))
KOREAN = "오늘 날씨가 좋네요"
TEXTS = st.lists(
    st.sampled_from(
        [
            *"the cats' \n\t.-—…´\"\\&[]<",
            "don't",
            "\r\n",
            "e\u0301",
            "가각",
            "سلام",
            "😀",
        ]
    )
    | st.characters(exclude_categories=("Cs",)),
    max_size=25,
).map("".join)


def load(path=FILE):
    return TokenizerOptions().load_tokenizer(str(path))


@pytest.fixture(scope="module")
def tokenizer():
    return load()


# --- The golden texts ----------------------------------------------------------------


def test_texts_have_the_ids_of_hugging_face(tokenizer):
    assert len(CASES) == 136
    for case in CASES:
        # There, <unk> in a text is the unknown; here it is text as any other.
        parts = [tokenizer.encode(part) for part in case["text"].split("<unk>")]
        ids = sum([[0, *part] for part in parts], [])[1:]
        assert ids == case["hf_ids"], case["text"]
    # Marks newer than the tables of the package tokenizers, private use, a final sigma.
    words = tokenizer.splitter.words("a\u0a76b.\ue000c ΑΣ")
    assert words == ["a\u0a76b", ".", "c", "ασ"]


def test_openai_finds_other_words_in_most_texts():
    """As docs/family/gpt.md says."""
    assert sum(case["ids"] == case["hf_ids"] for case in CASES) == 21


def check_offsets(text, starts, ends):
    assert starts == sorted(starts) and ends == sorted(ends)
    assert all(0 <= s < e <= len(text) for s, e in zip(starts, ends, strict=True))


# --- Any text ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph(tokenizer, tmp_path_factory):
    made = graph_of(tokenizer, str(tmp_path_factory.mktemp("graph")))
    encode = tf.function(
        made.encode_with_offsets,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )
    return made, encode


def check_graph(tokenizer, graph, texts):
    found = [column.to_list() for column in graph[1](tf.constant(texts, tf.string))]
    for number, text in enumerate(texts):
        expected = tokenizer.encode_with_offsets(text)
        assert tuple(column[number] for column in found) == expected, text


@pytest.mark.exhaustive
def test_a_graph_gives_the_same(tokenizer, graph):
    texts = [case["text"] for case in CASES]
    check_graph(tokenizer, graph, texts)
    # Of many merges in a word, and of words that end in each character.
    rng = random.Random(0)
    letters = "theinandrsou'.é\u0301\u2764"
    texts = ["".join(rng.choices(letters, k=rng.randrange(40))) for _ in range(500)]
    newer = "\U00011938 a\u0a76b \u1c89 x\ue000y ΑΣ. \U0010ffff \U0002b820\u166d the"
    check_graph(tokenizer, graph, [*texts, "the" * 300, "", "\n", KOREAN, newer])
    for texts in ([], [""], ["", "a", ""]):
        check_graph(tokenizer, graph, texts)
    made, _ = graph
    (ids,) = made.encode(tf.constant([b"the \xff cats"])).to_list()
    assert ids == tokenizer.encode("the \ufffd cats")
    spelled = [tokenizer.vocabulary.tokens[id].encode() for id in ids]
    assert made.tokens(tf.constant(ids)).numpy().tolist() == spelled
    assert made.mask_id is made.mask is None


def test_rows_are_packed_alike_in_a_graph(tokenizer, graph):
    pairs = [([5, 6], [7, 8, 9]), ([], [7]), ([5] * 9, [6] * 9)]
    sides = zip(*pairs, strict=True)
    a, b = (tf.ragged.constant(side, tf.int32, 1) for side in sides)
    for second, length in ((b, 7), (None, 5)):
        batch = packing_graph.pack(graph[0], a, second, length)
        for row, (first, other) in enumerate(pairs):
            ids, segments, _ = packing.pack(
                tokenizer.vocabulary,
                first,
                other if second is not None else None,
                length,
            )
            found = {k: v[row, : len(ids)].numpy().tolist() for k, v in batch.items()}
            assert found["input_ids"] == ids and found["segment_ids"] == segments
            assert batch["input_mask"][row].numpy().sum() == len(ids)


@given(texts=st.lists(TEXTS, max_size=4))
def test_a_graph_gives_the_same_for_any_text(tokenizer, graph, texts):
    check_graph(tokenizer, graph, texts)


@given(TEXTS)
def test_pieces_of_any_text_are_where_they_say(tokenizer, text):
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    check_offsets(text, starts, ends)
    for id, start, end in zip(ids, starts, ends, strict=True):
        piece = tokenizer.vocabulary.texts[id]
        if text.isascii() and text.isprintable() and id:
            assert text[start:end].lower() == piece
    packed, begins = tokenizer.encode_words(text)
    assert packed == tokenizer.encode_packed(text)
    assert len(begins) == len(ids)


def test_a_character_that_is_unknown_is_one_token(tokenizer):
    letters = KOREAN.replace(" ", "")
    ids, starts, ends = tokenizer.encode_with_offsets(KOREAN)
    assert set(ids) == {0} and len(ids) > len(letters)  # of each syllable, its letters
    assert "".join(
        dict.fromkeys(KOREAN[s:e] for s, e in zip(starts, ends, strict=True))
    )
    assert not tokenizer.decomposes(KOREAN)  # no flag would keep them whole
    lone = tokenizer.encode("a\ud800")
    assert lone == tokenizer.encode("a\u2764") and lone[1:] == [0]


# --- Rows and special tokens ---------------------------------------------------------


def test_rows_begin_with_start_and_end_with_classify(tokenizer):
    vocabulary = tokenizer.vocabulary
    size = len(json.loads(FILE.read_text()))
    start, delimiter, classify = range(size, size + 3)
    assert vocabulary.tokens[size:] == ["_start_", "_delimiter_", "_classify_"]
    assert (vocabulary.pad_id, vocabulary.unk_id) == (0, 0)
    a, b = [5, 6], [7, 8, 9]
    row = packing.pack(vocabulary, a, None, 9)
    assert row == ([start, 5, 6, classify], [0] * 4, False)
    ids, segments, is_cut = packing.pack(vocabulary, a, b, 7)
    assert ids == [start, 5, 6, delimiter, 7, 8, classify]
    assert segments == [0] * 7 and is_cut
    batch, is_text = packing.pack_pairs(
        np.array([*a, *b]), np.array([2]), np.array([3]), vocabulary, 9
    )
    expected = [start, 5, 6, delimiter, 7, 8, 9, classify, 0]
    assert batch["input_ids"].tolist() == [expected]
    assert np.flatnonzero(is_text[0]).tolist() == [1, 2, 4, 5, 6]
    assert vocabulary.is_separator(batch["input_ids"]).sum() == 2


def test_nothing_can_be_masked(tokenizer):
    for name in ("mask", "mask_id"):
        with pytest.raises(UserError, match="no token for hidden words"):
            getattr(tokenizer.vocabulary, name)
    assert "[MASK]" not in tokenizer.vocabulary.special_ids
    assert tokenizer.vocabulary.never_text == {tokenizer.vocabulary.cls_id}


# --- Files and flags -----------------------------------------------------------------


def copied(folder, *, vocabulary="encoder_bpe_40000.json", merges="vocab_40000.bpe"):
    folder.mkdir(exist_ok=True)
    shutil.copy(FILE, folder / vocabulary)
    shutil.copy(GOLDEN / "vocab_40000.bpe", folder / merges)
    return folder


def test_hugging_faces_names_and_a_folder_will_do(tokenizer, tmp_path):
    for path in (
        GOLDEN,
        copied(tmp_path / "hf", vocabulary="vocab.json", merges="merges.txt"),
        tmp_path / "hf" / "vocab.json",
        copied(tmp_path / "small", vocabulary="encoder_bpe.json", merges="vocab.bpe"),
    ):
        again = load(path=path)
        assert again.settings == tokenizer.settings
        assert again.encode("The cats.") == tokenizer.encode("The cats.")
    made = tmp_path / "made"
    made.mkdir()
    for name, content in tokenizer.files.items():
        (made / name).write_bytes(content)
    found = TOKENIZERS["gpt_bpe"].find(FolderFiles(str(made)))
    assert OpenVocabulary.open(str(made)).path == found.path
    assert OpenVocabulary.open(str(made)).kind.tokenizer is GptBpe
    assert load(path=made).settings == tokenizer.settings
    assert load_vocabulary(str(made)).tokens == tokenizer.vocabulary.tokens


@pytest.mark.parametrize(
    "flag", [{"do_lower_case": False}, {"strip_accents": True}, {"split_cjk": False}]
)
def test_flags_without_effect_are_refused(flag):
    with pytest.raises(UserError, match=f"--{next(iter(flag))} does not apply"):
        TokenizerOptions(**flag).load_tokenizer(str(FILE))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("vocab_40000.bpe", None, "vocab_40000.bpe: no such file; GPT's .* two files"),
        ("vocab_40000.bpe", b"t h\nt\n", "bpe:2: 't' is not two pieces"),
        ("vocab_40000.bpe", b"q zz\n", "'zz' is not in encoder_bpe_40000.json"),
        ("encoder_bpe_40000.json", b'{"a": 0}', "has no token <unk>"),
        ("encoder_bpe_40000.json", b'{"<unk>": 0}', "no character has a token with"),
        ("encoder_bpe_40000.json", b"[]", "not a vocabulary: not an object"),
    ],
)
def test_a_bad_vocabulary_is_refused_in_one_line(tmp_path, name, change, said):
    path = copied(tmp_path / "copy") / name
    path.unlink() if change is None else path.write_bytes(change)
    with pytest.raises(UserError, match=said):
        load(path=tmp_path / "copy" / "encoder_bpe_40000.json")


def test_merges_are_no_vocabulary_of_their_own():
    with pytest.raises(UserError, match="lists the merges .*; pass the .json"):
        load(path=GOLDEN / "vocab_40000.bpe")


# --- A tokenizer.json of GPT as transformers 5 writes it, and as we do ---------------


GPT = tests.GOLDEN / "gpt_bpe"
VOCABULARY = GPT / "encoder_bpe_40000.json"


def gpt() -> dict:
    flags = {"unk_token": "<unk>", "end_of_word_suffix": "</w>"}
    parts = bpe(GPT, "encoder_bpe_40000.json", "vocab_40000.bpe", **flags)
    return bert() | {"post_processor": None, "added_tokens": []} | parts


def test_it_is_the_vocabulary_of_the_two_files(tmp_path):
    check_same_files(gpt(), VOCABULARY, tmp_path)


def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path):
    ours = TokenizerOptions().load_tokenizer(str(VOCABULARY))
    check_written(ours, tmp_path, has_rows=False)


def test_text_that_is_not_lowercased_is_refused(tmp_path):
    folder = write(tmp_path, **changed(gpt(), "normalizer", lowercase=False))
    with pytest.raises(UserError, match="tokenizer.json: .*lowercase is false"):
        TokenizerOptions().load_tokenizer(str(folder))


# --- Its tokenizer in a SavedModel does the same as in Python ------------------------


@pytest.mark.exhaustive
def test_a_server_gives_the_same_ids(tmp_path):
    path = tests.GOLDEN / "gpt_bpe" / "encoder_bpe_40000.json"
    tokenizer = TokenizerOptions().load_tokenizer(str(path))
    check_server(tokenizer, tmp_path)


# --- A learned vocabulary for GPT is laid out like the release's ---------------------


def test_a_vocabulary_for_gpt_is_laid_out_like_the_release(tmp_path, capsys):
    file = tmp_path / "gpt" / "encoder_bpe_190.json"
    chosen = {"output_file": str(file), "heldout_share": 0.1}
    learn(tmp_path, TEXT + "漢\n", vocab_size=190, **chosen)
    tokens = list(json.loads(file.read_text("utf-8")))
    assert tokens[0] == "<unk>" and len(tokens) == 158  # no others occur together
    characters = [token for token in tokens[1:] if len(token) == 1]
    assert "我" in characters and "漢" not in characters and "Z" not in characters
    ends = [f"{character}</w>" for character in ["\n", *characters]]
    assert tokens[1 : 1 + len(characters) + len(ends)] == [*characters, *ends]
    merges = (file.parent / "vocab_190.bpe").read_text("utf-8").splitlines()
    assert [m.replace(" ", "") for m in merges[1:]] == tokens[2 * len(characters) + 2 :]
    tokenizer = TokenizerOptions().load_tokenizer(str(file))
    assert tokenizer.tokenize("Newest, 漢") == ["newest</w>", ",</w>", "<unk>"]
    out = capsys.readouterr().out
    assert "left out: 1 characters" in out and "0.000% are [UNK], 1.000 pieces" in out
    for wrong in (
        {"vocab_size": 20},
        {"kind": "gpt_bpe", "output_file": "a/vocab.json"},
    ):
        with pytest.raises(UserError, match="two tokens for each|be"):
            learn(tmp_path, TEXT, **chosen | {"vocab_size": 190} | wrong)


def test_every_process_writes_the_same_bytes(tmp_path):
    check_same_bytes(tmp_path, "encoder_bpe.json", size=190)
