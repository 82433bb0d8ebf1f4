"""SentencePiece equal to ALBERT's release, in a graph too, on any text."""

import base64
import random
import shutil

import numpy as np
import pytest

from training.backend import tf
from errors import UserError
from family.albert.tokenizer import FAMILY, begins_word
from tests import pieces, tiers
from tests.pieces import CASES, GOLDEN, check_graph, in_graph, random_texts
from tests.tokenizer_json import (
    ACCENTS,
    LOWER,
    PIECES,
    QUOTES,
    TEXT,
    check_refused,
    check_unigram,
    check_written,
    unigram,
    write,
)
from text.graphs.lookup import graph_of
from text.tokenizers import sentencepiece_files
from text.tokenizers.learning import sentencepiece_learning
from text.tokenizers.table import (
    OpenVocabulary,
    TokenizerOptions,
    load_vocabulary,
)

SWITCHES = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False},
    {"do_lower_case": False, "strip_accents": False},
]


def load(name="tiny", **flags):
    return pieces.load(name, **flags)


@pytest.fixture(scope="module")
def tokenizer():
    return load()


# --- The release ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_the_release(name):
    pieces.check_release(name, CASES[name])


@pytest.mark.parametrize(
    ("some", "begins"),
    [
        (
            ["\u2581a", "\u2581", "<pad>", ".", "1", "a1", "é", "한", "'", "'s", "="],
            True,
        ),
        (["a", "ing", "AB", "a.", "..", "a-b"], False),
    ],
)
def test_pieces_of_english_letters_continue_a_word(some, begins):
    assert list(map(begins_word, some)) == [begins] * len(some)


def test_text_is_lowercased_unless_asked_otherwise():
    assert load().settings["do_lower_case"]


def test_special_ids_are_found_by_name(tokenizer):
    vocabulary = tokenizer.vocabulary
    assert list(vocabulary.special_ids.values()) == [0, 1, 2, 3, 4]
    assert (vocabulary.mask, vocabulary.separators) == ("[MASK]", 1)
    assert not {0, 2, 3, 4} & set(tokenizer.encode("[CLS] [MASK] <pad> [SEP]"))


def test_words_are_what_spaces_separate():
    tokenizer = load("digits")
    packed, starts = tokenizer.encode_words("in 2019, y2020, v3, less")
    tokens = [tokenizer.vocabulary.tokens[i] for i in np.frombuffer(packed, np.uint16)]
    words = "".join(f"|{t}" if s else t for t, s in zip(tokens, starts, strict=True))
    # The release puts a space within y2020, which is none of the text.
    assert words.replace("\u2581", "") == "|in|2019,|y2020,|v3,|less"
    assert tokenizer.encode_words("") == (b"", b"")


# --- Offsets -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "parts"),
    [
        ("tiny", "  two\n\u3000spaces ", ["two", "space", "s"]),
        ("tiny", "fe\u0301\u0301 \u0301b", ["f", "e\u0301\u0301", "b"]),
        ("tiny", "½ ﬁle", ["½", "½", "½", "ﬁle"]),
        ("digits", "ﬁ", ["ﬁ", "ﬁ"]),
        ("tiny", "a\u200bb", ["a", "b"]),
        ("tiny", "각하", ["각하"]),  # unknown characters are one piece
        ("digits", "2019,y2020, 1,", ["2019", ",", "y", "2020", ",", "1", ","]),
        ("digits", "\U0001f101", ["\U0001f101"] * 2),  # one character: 0 and a comma
    ],
)
def test_pieces_are_where_they_come_from(name, text, parts):
    pieces.check_offsets(name, text, parts)


def test_a_space_alone_is_empty_and_where_the_next_piece_starts(tokenizer):
    ids, starts, ends = tokenizer.encode_with_offsets("Hello, \n World")
    spaces = [i for i, id in enumerate(ids) if tokenizer.vocabulary.tokens[id] == "▁"]
    assert len(spaces) == 2
    for place in spaces:
        assert starts[place] == ends[place] == starts[place + 1]


@pytest.mark.parametrize("name", CASES)
def test_an_annotated_answer_is_found_in_its_text(name):
    pieces.check_answers(name)


# --- The graph -----------------------------------------------------------------------


@pytest.mark.parametrize("name", tiers.cases(CASES, ["tiny"]))
def test_a_graph_gives_the_same(name, tmp_path):
    pieces.check_graph_of_cases(name, CASES[name], tmp_path)


def test_a_final_sigma_is_the_same_in_a_graph(tmp_path):
    content = sentencepiece_learning.learn(
        iter(["οδος σοφος σ ς σς a b . ' 1"] * 20),
        FAMILY.symbols,
        vocab_size=40,
        character_coverage=1.0,
        input_sentence_size=1000,
    )
    (tmp_path / "a.model").write_bytes(content)
    tokenizer = TokenizerOptions().load_tokenizer(str(tmp_path / "a.model"))
    final, other = (tokenizer.vocabulary.ids[letter] for letter in "ςσ")
    assert tokenizer.encode("ΟΣ")[-1:] == [final] and tokenizer.encode("ΟΣΑ") != [other]
    rng = random.Random(3)
    texts = ["".join(rng.choices("ΟΣΣΣ .'aB1\u0301\u00ad", k=9)) for _ in range(500)]
    check_graph(tokenizer, in_graph(tokenizer, tmp_path), texts)


@pytest.mark.exhaustive
@pytest.mark.parametrize("switches", SWITCHES[1:], ids=str)
def test_a_graph_gives_the_same_with_other_flags(switches, tmp_path):
    tokenizer = load("digits", **switches)
    texts = list(random_texts(500, seed=2))
    check_graph(tokenizer, in_graph(tokenizer, tmp_path), texts)


@pytest.mark.exhaustive
def test_tokens_and_models_do_not_mix_in_one_process(tokenizer, tmp_path):
    other = load("digits")
    paths = []
    for number, each in enumerate((tokenizer, other)):
        (tmp_path / f"{number}").mkdir()
        module = tf.Module()
        module.graph = graph_of(each, str(tmp_path / f"{number}"))
        module.encode = tf.function(
            module.graph.encode,
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        )
        paths.append(str(tmp_path / f"model{number}"))
        tf.saved_model.save(module, paths[-1])
        name = module.graph.tokens(tf.constant([2])).numpy()
        assert name == [b"[CLS]"]
    loaded = [tf.saved_model.load(path) for path in paths]
    text = "In 2019, 1,000 files"
    for each, model in zip((tokenizer, other), loaded, strict=True):
        assert model.encode(tf.constant([text])).to_list() == [each.encode(text)]


# --- Files ---------------------------------------------------------------------------


def test_its_files_make_it_again(tokenizer, tmp_path):
    for name, content in tokenizer.files.items():
        (tmp_path / name).write_bytes(content)
    assert OpenVocabulary.open(str(tmp_path)).path == str(tmp_path / "spiece.model")
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert again.settings == tokenizer.settings
    assert load(do_lower_case=False).settings != tokenizer.settings
    content = (GOLDEN / "tiny.model").read_bytes()
    assert (
        OpenVocabulary.open("x.model").kind.parse(content)
        == tokenizer.vocabulary.tokens
    )


def test_the_folder_of_a_release_is_a_vocabulary(tokenizer, tmp_path):
    shutil.copy(GOLDEN / "tiny.model", tmp_path / "30k-clean.model")
    (tmp_path / "30k-clean.vocab").write_text("<pad>\t0\n<unk>\t0\n")
    assert TokenizerOptions().load_tokenizer(str(tmp_path)).settings == (
        tokenizer.settings
    )
    shutil.copy(GOLDEN / "tiny.model", tmp_path / "other.model")
    with pytest.raises(UserError, match="contains no vocab.txt or .* or spiece.model"):
        TokenizerOptions().load_tokenizer(str(tmp_path))


VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("vocab.txt", None, "vocab.txt: is a SentencePiece model, .* ends in .model"),
        ("a.model", VOCABULARY, "a.model: not a SentencePiece model, .* ends in .txt"),
        ("a.model", "", "a.model: not a SentencePiece model"),
        ("a.vocab", "<pad>\t0\n<unk>\t0\na\t-3.5\n", "a.vocab: lists .* pass the"),
        ("b.vocab", "[PAD]\n", "b.vocab: no line is"),
    ],
)
def test_one_kind_of_file_for_another_is_said_in_one_line(
    tmp_path, name, content, said
):
    path = tmp_path / name
    if content is None:
        shutil.copy(GOLDEN / "tiny.model", path)
    else:
        path.write_text(content)
    for read in (TokenizerOptions().load_tokenizer, load_vocabulary):
        with pytest.raises(UserError, match=said):
            read(str(path))


def test_a_model_without_the_special_tokens_is_refused(tmp_path):
    content = (GOLDEN / "tiny.model").read_bytes().replace(b"[MASK]", b"[XXXX]")
    (tmp_path / "a.model").write_bytes(content)
    with pytest.raises(UserError, match=r"a.model: has no pieces <pad> .* \[MASK\]"):
        TokenizerOptions().load_tokenizer(str(tmp_path / "a.model"))
    with pytest.raises(UserError, match="--split_cjk=false does not apply"):
        load(split_cjk=False)


def test_letters_that_are_taken_apart_are_noticed(tokenizer):
    assert tokenizer.decomposes("がく") and not tokenizer.decomposes("かく")
    assert not load(strip_accents=False).decomposes("がく")
    # The model composes Hangul again.
    assert not tokenizer.decomposes("한국어")
    assert load("tiny").cleaner.clean("한").startswith("\u1112")


# --- A tokenizer.json of an ALBERT is a SentencePiece model, and back ----------------


def albert(steps=(*QUOTES, *ACCENTS, *LOWER)) -> dict:
    layout = "[CLS] A [SEP]", "[CLS] A [SEP] B [SEP]"
    return unigram("tiny", layout, list(steps))


@pytest.mark.parametrize(
    ("parts", "flags"),
    [
        (albert(), {}),
        (albert(QUOTES + LOWER), {"strip_accents": False}),
        (albert(QUOTES + ACCENTS), {"do_lower_case": False}),
    ],
)
def test_unigram_is_sentencepiece(tmp_path, parts, flags):
    check_unigram(tmp_path, parts, "tiny", flags)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (albert([*QUOTES, *LOWER, *ACCENTS]), "normalizer has the steps"),
        (albert([*QUOTES, ACCENTS[0], *LOWER]), "normalizer has the steps"),
        (albert([{"type": "NFKC"}]), "steps NFKC, but"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, parts, said):
    check_refused(tmp_path, parts, said)


@pytest.mark.parametrize(
    "flags", [{}, {"do_lower_case": False}, {"strip_accents": False}]
)
def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path, flags):
    path = str(PIECES / "tiny.model")
    ours = TokenizerOptions(**flags).load_tokenizer(path)
    check_written(ours, tmp_path, keeps_sigma=True)


def test_the_map_of_characters_goes_along(tmp_path):
    content = (PIECES / "tiny.model").read_bytes()
    parts = albert([*QUOTES, *ACCENTS, *LOWER, {"type": "Precompiled"}])
    parts["normalizer"]["normalizers"][-1]["precompiled_charsmap"] = charsmap(content)
    ours = TokenizerOptions().load_tokenizer(str(write(tmp_path, **parts)))
    same = TokenizerOptions().load_tokenizer(str(PIECES / "tiny.model"))
    for text in (TEXT, "½ ﬁ ™ \u3000x\u200b", "\u1112\u1161\u11ab 한국어"):
        assert ours.encode(text) == same.encode(text)


def charsmap(model: bytes) -> str:
    """The map of characters of a SentencePiece model, as a tokenizer.json has it."""
    sentencepiece_files.library()  # which imports it without its warnings
    from sentencepiece import sentencepiece_model_pb2

    content = sentencepiece_model_pb2.ModelProto.FromString(model)
    charsmap = content.normalizer_spec.precompiled_charsmap
    return base64.b64encode(charsmap).decode()
