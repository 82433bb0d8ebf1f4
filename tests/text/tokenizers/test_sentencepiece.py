"""SentencePiece equal to ALBERT's and XLNet's releases, in a graph too, on any text."""

import itertools
import json
import random
import shutil
import sys
import unicodedata

import numpy as np
import pytest

import tests
from training.backend import tf
from errors import UserError
from tests import tiers
from text.graphs.lookup import graph_of
from text.tasks import squad
from text.tasks.answer_spans import Document
from text.tokenizers import sentencepiece
from text.tokenizers.learning import sentencepiece_learning
from text.tokenizers.table import (
    TokenizerOptions,
    find_vocabulary,
    kind_of,
    load_vocabulary,
)

GOLDEN = tests.GOLDEN / "sentencepiece"
CASES = json.loads((GOLDEN / "cases.json").read_text("utf-8"))
CASES |= json.loads((GOLDEN / "xlnet_cases.json").read_text("utf-8"))
SWITCHES = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False},
    {"do_lower_case": False, "strip_accents": False},
]
# Each alone or next to others is treated in some way of its own.
NASTY = [
    *"aAbßİıΣσςͅ'., \t\n\r\x00\x0b\x1c\x85\u00a0\u2028\u3000\ufeff\u200d\u200b\ufffd1119,,",
    *'\u2581()"-–£€¼½´\U0001f1012０，éÉ\u0301\u0316\u0345\u0591가각\u1100\u1161\u11a8が\u3099',
    "``",
    "'''",
    *"中豈\U00020000\U0001d165\U0001d15e\u0f71\u0f72Å\U0001f600\U0010ffff\ue000ﬁ",
]


def load(name="tiny", **flags):
    return TokenizerOptions(**flags).load_tokenizer(str(GOLDEN / f"{name}.model"))


@pytest.fixture(scope="module")
def tokenizer():
    return load()


# --- The release ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ids_are_those_of_the_release(name):
    """With the comma after a number apart, and the space that this adds (digits)."""
    for case in CASES[name]:
        strips = False if case.get("keep_accents") else None
        tokenizer = load(name, do_lower_case=case.get("lower"), strip_accents=strips)
        text = case["text"]
        assert tokenizer.cleaner.clean(text) == case["preprocessed"]
        assert tokenizer.encode(text) == case["ids"], text
        assert tokenizer.encode_with_offsets(text)[0] == case["ids"]
        packed = np.frombuffer(tokenizer.encode_packed(text), np.uint16)
        assert packed.tolist() == case["ids"]
        assert tokenizer.encode_words(text)[0] == packed.tobytes()
        begins = [tokenizer.family.begins_word(piece) for piece in case["pieces"]]
        assert begins == case.get("start_piece", begins)


@pytest.mark.parametrize(
    ("pieces", "begins"),
    [
        (
            ["\u2581a", "\u2581", "<pad>", ".", "1", "a1", "é", "한", "'", "'s", "="],
            True,
        ),
        (["a", "ing", "AB", "a.", "..", "a-b"], False),
    ],
)
def test_pieces_of_english_letters_continue_a_word(pieces, begins):
    found = [sentencepiece.begins_word_in_albert(piece) for piece in pieces]
    assert found == [begins] * len(pieces)


def test_a_piece_of_one_mark_begins_a_word_for_xlnet():
    marks = [*"\u2581.-_`@", "\u2581a", "<unk>"]
    begins = map(sentencepiece.begins_word_in_xlnet, [*marks, *"a1'=>é한", "a.", ".."])
    assert list(begins) == [True] * len(marks) + [False] * 9


def test_xlnet_is_cased_unless_asked_otherwise():
    assert not load("xlnet").settings["do_lower_case"]
    assert load("xlnet", do_lower_case=True).settings["do_lower_case"]
    assert load("tiny").settings["do_lower_case"]


def test_special_ids_are_found_by_name(tokenizer):
    vocabulary = tokenizer.vocabulary
    assert list(vocabulary.special_ids.values()) == [0, 1, 2, 3, 4]
    assert (vocabulary.mask, vocabulary.separators) == ("[MASK]", 1)
    assert not {0, 2, 3, 4} & set(tokenizer.encode("[CLS] [MASK] <pad> [SEP]"))


def test_words_are_what_spaces_separate():
    tokenizer = load("digits")
    packed, starts = tokenizer.encode_words("in 2019, y2020, v3, less")
    pieces = [tokenizer.vocabulary.tokens[i] for i in np.frombuffer(packed, np.uint16)]
    words = "".join(f"|{p}" if s else p for p, s in zip(pieces, starts, strict=True))
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
        ("xlnet", "``\u0301''' .", ["``\u0301", "''", "'", "."]),
        ("xlnet", "\u0301``` 1", ["``", "`", "1"]),
    ],
)
def test_pieces_are_where_they_come_from(name, text, parts):
    tokenizer = load(name)
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    tokens = [tokenizer.vocabulary.tokens[id] for id in ids]
    spans = zip(tokens, starts, ends, strict=True)
    assert [
        text[start:end] for token, start, end in spans if token != "\u2581"
    ] == parts


def test_a_space_alone_is_empty_and_where_the_next_piece_starts(tokenizer):
    ids, starts, ends = tokenizer.encode_with_offsets("Hello, \n World")
    spaces = [i for i, id in enumerate(ids) if tokenizer.vocabulary.tokens[id] == "▁"]
    assert len(spaces) == 2
    for place in spaces:
        assert starts[place] == ends[place] == starts[place + 1]


CONTEXTS = [
    (
        "The Übergröße  (1895-1943)\n\nis in the file\ttext.",
        ["1895", "Übergröße", "is"],
    ),
    ("Ås naı̈ve, ½ ﬁles; İstanbul in 2019, or y2020,", ["naı̈ve", "ﬁles", "İstanbul"]),
    ("서울의 날씨는 좋네요\u3000😀 it's", ["날씨는", "😀", "it's", "서울"]),
    ("In 2019, the value (2020,) was", ["2019", "2020", "value (2020"]),
]


@pytest.mark.parametrize("name", CASES)
def test_an_annotated_answer_is_found_in_its_text(name):
    tokenizer = load(name)
    for context, answers in CONTEXTS:
        document = Document(tokenizer, context)
        assert (np.diff(document.starts) >= 0).all()
        for answer in answers:
            start = context.index(answer)
            first, last = squad.find_answer(document, tokenizer, answer, start)
            found = context[document.starts[first] : document.ends[last]]
            assert answer in found
            # More than the answer only if one piece is: unknown characters share one.
            own = document.ids[first : last + 1].tolist()
            if tokenizer.vocabulary.unk_id not in own:
                assert found == answer


# --- The graph -----------------------------------------------------------------------


def random_texts(number, seed):
    rng = random.Random(seed)
    assigned = [
        chr(point)
        for point in range(sys.maxunicode + 1)
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
    ]
    words = " ".join(case["text"] for case in CASES["tiny"]).split()
    for kind in itertools.islice(itertools.cycle(range(4)), number):
        size = rng.randrange(14)
        if kind == 0:
            yield "".join(rng.choices(assigned, k=size))
        elif kind == 1:
            yield "".join(rng.choices(NASTY, k=size))
        elif kind == 2:
            yield "".join(rng.choices("0123456789, xyaΣ\u0301v", k=size))
        else:
            parts = (words, NASTY, assigned, [f"{rng.randrange(3000)},"])
            yield " ".join(rng.choice(rng.choice(parts)) for _ in range(size))


def in_graph(tokenizer, folder):
    graph = graph_of(tokenizer, str(folder))
    return tf.function(
        graph.encode_with_offsets,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )


def check_graph(tokenizer, encode, texts):
    found = [column.to_list() for column in encode(tf.constant(texts, tf.string))]
    for number, text in enumerate(texts):
        expected = tokenizer.encode_with_offsets(text)
        assert tuple(column[number] for column in found) == expected, text
        assert expected[0] == tokenizer.encode(text)
        _, starts, ends = expected
        assert starts == sorted(starts)
        spans = zip(starts, ends, strict=True)
        assert all(0 <= start <= end <= len(text) for start, end in spans)


@pytest.mark.slow
@pytest.mark.parametrize("name", tiers.cases(CASES, ["tiny", "xlnet_digits"]))
def test_a_graph_gives_the_same(name, tmp_path):
    tokenizer = load(name)
    encode = in_graph(tokenizer, tmp_path)
    texts = [case["text"] for case in CASES[name]] + [text for text, _ in CONTEXTS]
    check_graph(tokenizer, encode, texts + list(random_texts(500, seed=1)))
    for texts in ([], [""], ["", " ", "a", ""]):
        check_graph(tokenizer, encode, texts)
    invalid = encode(tf.constant([b"a\xffb"]))[0].to_list()
    assert invalid == [tokenizer.encode("a\ufffdb")] == [tokenizer.encode("a\ud800b")]


@pytest.mark.slow
def test_a_final_sigma_is_the_same_in_a_graph(tmp_path):
    content = sentencepiece_learning.learn(
        iter(["οδος σοφος σ ς σς a b . ' 1"] * 20),
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


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_a_graph_gives_the_same_for_many_texts(name, tmp_path):
    tokenizer = load(name)
    texts = list(random_texts(5_000, seed=1))
    check_graph(tokenizer, in_graph(tokenizer, tmp_path), texts)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("switches", SWITCHES[1:], ids=str)
def test_a_graph_gives_the_same_with_other_flags(switches, tmp_path):
    tokenizer = load("digits", **switches)
    texts = list(random_texts(500, seed=2))
    check_graph(tokenizer, in_graph(tokenizer, tmp_path), texts)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_tokens_and_models_do_not_mix_in_one_process(tokenizer, tmp_path):
    other = load("digits")
    paths = []
    for number, each in enumerate((tokenizer, other)):
        (tmp_path / f"{number}").mkdir()
        module = tf.Module()
        module.graph = graph_of(each, str(tmp_path / f"{number}"))
        module.encode = tf.function(
            module.graph.encode, input_signature=[tf.TensorSpec([None], tf.string)]
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
    assert find_vocabulary(str(tmp_path)) == str(tmp_path / "spiece.model")
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert again.settings == tokenizer.settings
    assert load(do_lower_case=False).settings != tokenizer.settings
    content = (GOLDEN / "tiny.model").read_bytes()
    assert kind_of("x.model").parse(content) == tokenizer.vocabulary.tokens


def test_the_folder_of_a_release_is_a_vocabulary(tokenizer, tmp_path):
    shutil.copy(GOLDEN / "tiny.model", tmp_path / "30k-clean.model")
    (tmp_path / "30k-clean.vocab").write_text("<pad>\t0\n<unk>\t0\n")
    assert TokenizerOptions().load_tokenizer(str(tmp_path)).settings == (
        tokenizer.settings
    )
    shutil.copy(GOLDEN / "tiny.model", tmp_path / "other.model")
    with pytest.raises(UserError, match="contains no vocab.txt or spiece.model"):
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
