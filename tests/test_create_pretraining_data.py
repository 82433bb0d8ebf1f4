"""create_pretraining_data.py as a user meets it: formats, and what is refused."""

import gzip
import json
import math
import os
import pathlib
import random

import numpy as np
import pytest

import tests
from errors import UserError
from tests.packed import pack
from tests.records import CORPUS, TEXT, VOCAB_FILE, make, write
from text.corpus import formats, line_formats, text_format
from text.tokenizers.vocabulary import Vocabulary

pytestmark = pytest.mark.usefixtures("in_a_folder", "no_fsync")


def test_the_first_command_of_the_release_has_its_text_and_no_warnings(capsys):
    make(
        input_file=[str(tests.ROOT / "sample_text.txt")],
        vocab_file=str(tests.ROOT / "vocab" / "vocab.txt"),
        max_seq_length=128,
        max_predictions_per_seq=20,
        dupe_factor=5,
    )
    shown = capsys.readouterr().out
    assert "Text: 5 documents" in shown and "warning" not in shown


def test_all_formats_hold_the_same_text():
    texts = ["The first one. The second is here.", "Another has two. This is it."]
    write("a.txt", TEXT)
    write("b.txt", "\n\n".join(texts))
    for name, text in zip(("c1.txt", "c2.txt"), texts, strict=True):
        write(name, text.replace(" ", "\n"))
    write("d.jsonl", "".join(json.dumps({"body": text}) + "\n" for text in texts))
    with gzip.open("e.txt.gz", "wb") as file:
        file.write(TEXT.encode())
    expected = make(input_file=["a.txt"])
    for number, given in enumerate(
        (
            {"input_file": ["b.txt"], "input_format": "paragraphs"},
            {"input_file": ["c?.txt"], "input_format": "files"},
            {"input_file": ["d.jsonl"], "input_format": "jsonl", "json_field": "body"},
            {"input_file": ["e.txt.gz"]},
        )
    ):
        found = make(output_file=[f"out-{number}"], **given)
        for name, values in expected.items():
            assert np.array_equal(found[name], values), (given, name)


def test_a_text_without_empty_lines_is_read_in_bounded_pieces(monkeypatch):
    lines = [f"the {'and ' * (i % 7)}of.\nThe" for i in range(300)]
    write("text.txt", "\n".join(lines))
    span = text_format.FileSpan("text.txt", 0, None, os.path.getsize("text.txt"))
    files = formats.TextOptions(input_format="files")
    whole = list(formats.read(span, files))
    monkeypatch.setattr(line_formats, "_PARAGRAPH_CHARACTERS", 50)
    assert list(formats.read(span, files)) == whole
    assert len(whole) > 300


def test_a_vocabulary_of_another_language_is_noticed(capsys):
    write("text.txt", "\u4f60\u597d \u4e16\u754c\n\nthe of\n" * 20)
    make()
    assert (
        "of the tokens are [UNK]; check that the vocabulary" in capsys.readouterr().out
    )


def a_to_b(batch):
    """For each pair of neighbours, the first token of a and of b; without masks."""
    b_starts = batch["segment_ids"].argmax(axis=1)
    rows = np.arange(len(b_starts))
    tokens = Vocabulary.load(VOCAB_FILE).tokens
    a, b = batch["input_ids"][:, 1], batch["input_ids"][rows, b_starts]
    is_next = batch["next_sentence_labels"][:, 0] == 0
    return {(tokens[i], tokens[j]) for i, j in zip(a[is_next], b[is_next], strict=True)}


def test_a_file_s_end_ends_a_document():
    write("1.txt", "of of\n\nthe the\n")
    write("2.txt", "and and\n")
    batch = make(
        input_file=["1.txt", "2.txt"],
        dupe_factor=30,
        mask_share=0.0,
        keep_share=1.0,
        random_share=0.0,
    )
    assert a_to_b(batch) == set()


def test_words_of_segmented_text_are_masked_as_a_whole():
    words = ["研究", "生命", "科学", "大学"]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    write("vocab.txt", "\n".join(specials + sorted(set("".join(words)))))
    rng = random.Random(0)
    write("text.txt", "\n\n".join(" ".join(rng.choices(words, k=9)) for _ in range(9)))
    # Two sides of 18 characters, 39 tokens: 10.92 of them are to be predicted.
    given = {
        "vocab_file": "vocab.txt",
        "max_seq_length": 64,
        "max_predictions_per_seq": 20,
        "masked_lm_prob": 0.28,
        "do_whole_word_mask": True,
    }
    by_spaces = make(word_boundaries="spaces", **given)
    assert (by_spaces["masked_lm_weights"].sum(axis=1) == 10).all()
    for positions in by_spaces["masked_lm_positions"][:, :10]:
        # a stands at 1 to 18 and b at 20 to 37: words start at odd and at even places.
        assert (positions[1::2] == positions[::2] + 1).all()
        assert (positions[::2] % 2 == (positions[::2] < 19)).all()
    # Without, each character is a word, as in the release.
    by_pieces = make(output_file=["other"], **given)
    assert (by_pieces["masked_lm_weights"].sum(axis=1) == 11).all()


def test_korean_is_taken_apart_with_one_warning(capsys):
    write("text.txt", "한국어 문장\n둘째 문장\n\n다른 문서\n끝\n" * 3)
    make()
    lines = capsys.readouterr().out.splitlines()
    (warning,) = (line for line in lines if "Hangul" in line)
    assert "--strip_accents=false" in warning
    make(output_file=["other"], strip_accents=False)
    assert "Hangul" not in capsys.readouterr().out


def test_without_random_nexts_one_document_is_enough():
    write("text.txt", "The first one.\nThe second.\nThe third.\nAnother.\n" * 9)
    batch = make(random_next_sentences=False)
    assert len(batch["input_ids"]) and not batch["next_sentence_labels"].any()


def test_what_is_lost_is_said(capsys):
    write("text.txt", TEXT + "word " * 100 + "\n\x00\n")
    make(max_predictions_per_seq=2)
    said = capsys.readouterr().out
    assert (
        "warning: --masked_lm_prob=0.15 asks for 5 predictions in 32 tokens, but "
        "--max_predictions_per_seq=2 loses 60% of them; 5 would lose none"
    ) in said
    assert "1 sentences are longer than a whole record" in said
    assert "Skipped 1 line without tokens" in said
    assert "warning: --max_predictions_per_seq left out" in said
    make(output_file=["other"], max_predictions_per_seq=5)
    assert "left out" not in capsys.readouterr().out


def test_a_number_stands_for_output_files():
    write("text.txt", TEXT)
    make(output_file=["a@2", "sub/b"])
    assert sorted(str(p) for p in pathlib.Path().glob("**/*") if p.is_file()) == [
        "a-00000-of-00002",
        "a-00000-of-00002.description.json",
        "a-00001-of-00002",
        "sub/b",
        "text.txt",
    ]


def test_ten_megabytes_in_a_line_and_nuls():
    write("text.txt", b"x" * 10_000_000 + b"\n\n" + b"a\x00nd the\n" * 3)
    batch = make()
    ids = Vocabulary.load(VOCAB_FILE).ids
    assert {ids["[UNK]"], ids["and"]} <= set(batch["masked_lm_ids"].ravel().tolist())


def test_a_lone_surrogate_is_an_unknown_character():
    write("text.jsonl", '{"text": "The \\ud800 one. It is."}\n{"text": "Two. It."}\n')
    batch = make(input_file=["text.jsonl"], input_format="jsonl", masked_lm_prob=0.9)
    assert Vocabulary.load(VOCAB_FILE).unk_id in batch["masked_lm_ids"]


# === What is refused ===


LONE = "One document.\nOf two sentences.\n"
REFUSED = {
    "a sample of what is no Parquet": (
        {"input_format": "parquet", "dry_run": True},
        "is not a Parquet file that can be read",
    ),
    "a column of text": ({"text_column": "body"}, "for --input_format=parquet"),
    "lists of text": ({"keep_lists": True}, "for --input_format=wikipedia"),
    "no file": ({"input_file": ["no*.txt"]}, r"no file matches 'no\*\.txt'"),
    "no name": ({"input_file": []}, "--input_file= is empty"),
    "a folder": ({"input_file": ["."]}, r"\.: is a folder; name its files"),
    "not UTF-8": ({"text": b"good\nba\xff\n"}, r"text\.txt:2: not UTF-8 \(byte 0xff"),
    "a long line": (
        {"text": "A line.\n" + "a " * 500_001, "max_line_mb": 1},
        r"text\.txt:2: the line is longer than --max_line_mb=1; break it, or raise",
    ),
    "no line": ({"max_line_mb": 0}, "--max_line_mb=0: must be from 1"),
    "empty": ({"text": ""}, "no line of the 1 input file.s. contains a token"),
    "blank": ({"text": "\n \n\x00\n"}, "no line of the 1 input file.s. contains a"),
    "one document": ({"text": LONE}, "one document, .*--random_next_sentences=false"),
    "no pairs": (
        {"text": "One.\n\nTwo.\n", "random_next_sentences": False},
        "no document has two sentences",
    ),
    "JSON": (
        {"text": '{"text": "a"}\n{"text"', "input_format": "jsonl"},
        r"text\.txt:2: not JSON",
    ),
    "JSON, deep": (
        {"text": "[" * 99_999, "input_format": "jsonl"},
        r":1: unreadable JSON",
    ),
    "JSON, field": (
        {"text": '\n{"body": "a"}', "input_format": "jsonl"},
        r"text\.txt:2: not a JSON object with a string 'text'; .*--json_field",
    ),
    "JSON, number": (
        {"text": '{"text": 7}', "input_format": "jsonl"},
        r"text\.txt:1: not a JSON object with a string 'text'",
    ),
    "many outputs": ({"output_file": ["o@999"]}, "instances for 999 output files"),
    "no outputs": ({"output_file": ["o@0"]}, "o@0: must name from 1 to 99,999 f"),
    "fewer outputs": ({"output_file": ["o@-1"]}, "o@-1: must name from 1 to 99,999 f"),
    "all outputs": ({"output_file": ["o@999999999"]}, "o@999999999: must name from 1"),
    "digits of another script": ({"output_file": ["o@٣"]}, "o@٣: must name from 1"),
    "odd outputs": ({"output_file": ["o@1e3"]}, "o@1e3: must name .* as in NAME@16"),
    "no number": ({"output_file": ["o@"]}, "o@: must name from 1"),
    "two numbers": ({"output_file": ["o@@3"]}, "o@@3: must name from 1"),
    "a number alone": ({"output_file": ["@3"]}, "@3: must name from 1"),
    "not JSON": (
        {"json_field": "a"},
        "--json_field has no effect with --input_format=s",
    ),
    "empty output": ({"output_file": ["o", ""]}, "a name is empty"),
    "output twice": ({"output_file": ["o", "./o"]}, "named twice"),
    "output is input": (
        {"output_file": ["./text.txt"], "overwrite": True},
        "text.txt: is also an input",
    ),
    "description is input": (
        {"input_file": ["text.txt"], "output_file": ["o", "o.description.json"]},
        "o.description.json: the description of the records is written here",
    ),
    "output is the work folder": (
        {"output_file": ["o", "./o.work"]},
        "o.work: o.work is the folder for unfinished work",
    ),
    "output in the work folder": (
        {"output_file": ["o", "o.work/p"]},
        "o.work/p: o.work is the folder for unfinished work",
    ),
    "output is vocabulary": (
        {"output_file": [VOCAB_FILE], "overwrite": True},
        "is also an input",
    ),
    "output folder is a file": (
        {"output_file": ["text.txt/o"]},
        "text.txt: is not a folder, so text.txt/o cannot be written",
    ),
    "output is a folder": ({"output_file": ["."]}, r"\.: is a folder; name a file"),
    "short": ({"max_seq_length": 7}, "--max_seq_length=7: must be from 8 to"),
    "long": ({"max_seq_length": 1 << 16}, "--max_seq_length=65536: must be from 8"),
    "many predictions": (
        {"max_predictions_per_seq": 10**9},
        "must be from 1 to 32,768",
    ),
    "many passes": (
        {"dupe_factor": 10**9},
        "--dupe_factor=1000000000: must be from",
    ),
    "no predictions": ({"max_predictions_per_seq": 0}, "must be from 1"),
    "no passes": ({"dupe_factor": 0}, "--dupe_factor=0: must be from 1"),
    "probability": ({"masked_lm_prob": 1.5}, "--masked_lm_prob=1.5: .* 0 to 1"),
    "no probability": ({"masked_lm_prob": 0.0}, "nothing to predict"),
    **{
        f"{name}, not a number": (
            {name: math.nan},
            f"--{name}=nan: must be a finite number",
        )
        for name in ("masked_lm_prob", "short_seq_prob", "mask_share", "keep_share")
    },
    "shares": ({"mask_share": 0.9}, "add up to 1.1; they must add up to 1"),
    "spaces alone": ({"word_boundaries": "spaces"}, "needs --do_whole_word_mask"),
    "n-grams": ({"ngram": 0}, "--ngram=0: must be at least 1"),
    "long n-grams": ({"ngram": 33}, "--ngram=33: must be at most --max_seq_length=32"),
    "vocabulary": ({"vocab_file": "text.txt"}, r"text\.txt: no line is \[PAD\]"),
}


@pytest.mark.parametrize("given, message", REFUSED.values(), ids=REFUSED)
def test_refused_with_one_line(given, message):
    given = dict(given)
    write("text.txt", given.pop("text", TEXT))
    with pytest.raises(UserError, match=message) as error:
        make(**given)
    assert "\n" not in str(error.value)
    assert os.listdir() == ["text.txt"]


def test_a_description_or_a_link_is_not_written_over_an_input():
    write("o.description.json", TEXT)
    os.symlink("o.description.json", "link")
    for output in ("o", "link"):
        with pytest.raises(UserError, match=f"{output}.*: is also an input"):
            make(
                input_file=["o.description.json"], output_file=[output], overwrite=True
            )
    assert pathlib.Path("o.description.json").read_text() == TEXT
    assert sorted(os.listdir()) == ["link", "o.description.json"]


def test_a_part_of_a_model_is_not_written_over():
    write("text.txt", TEXT)
    for name in ("model.safetensors", "config.json"):
        write(name, "{}")
    with pytest.raises(UserError, match="config.json: is a part of the model in"):
        make(output_file=["config.json"], overwrite=True)
    assert pathlib.Path("config.json").read_text() == "{}"


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zst"])
def test_a_damaged_packed_file_is_named(suffix):
    packed = pack(CORPUS.read_bytes(), suffix)
    cut, plain = f"cut.{suffix}", f"plain.{suffix}"
    write(cut, packed[: len(packed) // 2])
    with pytest.raises(UserError, match=rf"{cut}:\d+: the compressed data is damaged"):
        make(input_file=[cut])
    write(plain, "no such thing")
    with pytest.raises(UserError, match=f"{plain}:1: the compressed data is damaged"):
        make(input_file=[plain])
    assert sorted(os.listdir()) == [cut, plain]


def test_a_case_that_contradicts_the_vocabulary_s_name_is_refused():
    folder = pathlib.Path("cased_L-12_H-768_A-12")
    folder.mkdir()
    write(folder / "vocab.txt", pathlib.Path(VOCAB_FILE).read_bytes())
    write("text.txt", TEXT)
    with pytest.raises(UserError, match="--do_lower_case=true does not match"):
        make(vocab_file=str(folder / "vocab.txt"))
