"""augment.py: the same flags give the same rows, whatever the batches and order."""

import csv
import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest

import tests
from training.queries import mask_filling
from training.run import capacity
from training.storage import checkpoint, whole_model
from training.storage.source import Source
from errors import UserError
from files import memory
from modeling.objectives import masked_lm
from recipes import augment, rewriting
from tests import samples
from tests.given import RELEASED
from tests.recipes.scripts import of_augmentation
from tests.training.run.test_capacity import refused
from text.tokenizers.table import TokenizerOptions

ROBERTA = samples.collect("CONFIGS").get("roberta")
LINES = [
    "The movie is good, but the actors of the film were great!",
    "Don't return the list of 12 values (see the docs).",
    "Paris  is\u00a0nice; the city.",
    "of the",
    "1999!",
    "It was the last in the season.",
]
FEW = {"num_copies": 6, "max_seq_length": 48, "batch_size": 16}


def rewritten(folder, lines=LINES, name="text.txt", out="out.tsv", **flags):
    """The rows written for a file of these lines."""
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    given = {
        **RELEASED,
        **FEW,
        "input_file": str(folder / name),
        "output_file": str(folder / out),
    }
    augment.main(augment.Options(**given | flags))
    return (folder / out).read_text().splitlines()


@pytest.fixture(scope="module")
def loaded():
    """What was loaded, by its checkpoint."""
    return {}


@pytest.fixture(autouse=True)
def fast(untraced, loaded, monkeypatch):
    load = mask_filling.load

    def load_once(given):
        if given.init_checkpoint not in loaded:
            loaded[given.init_checkpoint] = load(given)
        return loaded[given.init_checkpoint]

    monkeypatch.setattr(mask_filling, "load", load_once)


@pytest.mark.exhaustive
def test_the_same_bytes_for_any_batches_and_neighbors(tmp_path, monkeypatch, capsys):
    rows = rewritten(tmp_path, [*LINES, "", " "])
    said = capsys.readouterr().err.splitlines()
    assert rows[0] == "text" and set(LINES) < set(rows)
    monkeypatch.setattr(augment, "_ROWS_AT_ONCE", 2)
    assert rows == rewritten(tmp_path, batch_size=5)
    # Of other rows, only the number matters.
    other = rewritten(tmp_path, ["!", *LINES[1:3]])
    place = rows.index(LINES[1])
    assert rows[place : rows.index(LINES[3])] == other[2:]
    # A copy does not depend on how many there are.
    fewer = rewritten(tmp_path, LINES[:1], num_copies=2)
    assert len(fewer) == 4 and fewer == rows[:4]
    copies = len(rows) - 1 - len(LINES)
    repeated = len(LINES) * FEW["num_copies"] - copies
    assert 6 < repeated < 20  # all six copies of 1999!
    assert said[-3:] == [
        f"{tmp_path}/out.tsv: 6 rows and {copies} copies; {repeated} more "
        "were equal to another text of their row and left out",
        "rows without a copy: 1",
        "empty lines that were skipped: 2",
    ]
    assert len(set(rows)) == len(rows)


def test_words_are_the_most_probable_of_a_row_with_the_text_after_it(
    tmp_path, untraced
):
    text = LINES[0]
    rows = rewritten(tmp_path, [text], num_copies=40, top_k=3, mask_probability=1.0)
    tokenizer = TokenizerOptions().load_tokenizer(RELEASED["vocab_file"])
    vocabulary = tokenizer.vocabulary
    source = Source.open(RELEASED["init_checkpoint"])
    model = whole_model.load_masked_lm(source.config, source)
    # No word of this text has more than one piece here.
    words = text.replace(",", " ,").replace("!", " !").split()
    ids = [vocabulary.ids.get(word.lower(), vocabulary.unk_id) for word in words]
    assert ids == tokenizer.encode(text)
    is_word = [token.isalpha() for token in vocabulary.tokens]
    cls, sep = [vocabulary.cls_id], [vocabulary.sep_id]
    for number, word in enumerate(words):
        row = cls + ids[:number] + [vocabulary.mask_id] + ids[number + 1 :] + sep
        batch = {
            "input_ids": np.array([row + ids + sep]),
            "segment_ids": np.array([[0] * len(row) + [1] * (len(ids) + 1)]),
            "masked_lm_positions": np.array([[number + 1]]),
        }
        logits = np.asarray(model(batch)["masked_lm_logits"])[0, 0][: len(vocabulary)]
        best = np.argsort(-np.where(is_word, logits, -np.inf))[:3]
        expected = {vocabulary.tokens[id] for id in best} if word.isalpha() else {word}
        found = {
            row.replace(",", " ,").replace("!", " !").split()[number]
            for row in rows[2:]
        }
        assert {each.lower() for each in found} == expected


@pytest.mark.exhaustive
def test_tables_keep_their_columns_and_forms(tmp_path, untraced):
    lines = ["id\tone\ttwo\tlabel"]
    lines += [
        f"{n}\t{a}\t{b}\t0" for n, (a, b) in enumerate(itertools.pairwise(LINES[1:4]))
    ]
    columns = ["one", "two"]
    rows = rewritten(tmp_path, lines, "in.tsv", text_columns=columns)
    cells = [row.split("\t") for row in rows]
    assert cells[0] == ["id", "one", "two", "label"]
    assert {len(row) for row in cells} == {4} and {row[3] for row in cells[1:]} == {"0"}
    assert [int(row[0]) for row in cells[1:]] == sorted(
        int(row[0]) for row in cells[1:]
    )
    assert set(lines) < set(rows)
    assert len({row[2] for row in cells if row[0] == "0"}) > 3
    only = rewritten(tmp_path, lines, "in.tsv", text_columns=["one"])
    assert {row.split("\t")[2] for row in only[1:]} == set(LINES[2:4])
    # The same rows in all forms, and of all forms.
    rewritten(tmp_path, lines, "in.tsv", "out.csv", text_columns=columns)
    with open(tmp_path / "out.csv", newline="") as file:
        assert list(csv.reader(file)) == cells
    objects = [dict(zip(cells[0], line.split("\t"), strict=True)) for line in lines[1:]]
    made = [json.dumps(each) for each in objects]
    found = rewritten(tmp_path, made, "in.jsonl", "out.jsonl", text_columns=columns)
    assert [list(json.loads(line).values()) for line in found] == cells[1:]
    copies = rewritten(
        tmp_path, lines, "in.tsv", text_columns=columns, keep_original=False
    )
    assert copies == [row for row in rows if row not in lines[1:]]


def test_values_of_json_and_what_a_table_cannot_hold(tmp_path, untraced):
    rows = [{"text": "of the\tfilm\n", "label": 1, "more": None}, {"text": ""}]
    lines = list(map(json.dumps, rows))
    found = rewritten(tmp_path, lines, "in.jsonl", "out.jsonl", num_copies=1)
    assert [json.loads(found[n]) for n in (0, -1)] == rows  # nothing is made of ""
    assert json.loads(found[1])["more"] is None and len(found) == 3
    with pytest.raises(UserError, match=r"in.jsonl:1: contains a tab, which a .tsv"):
        rewritten(tmp_path, lines, "in.jsonl")
    with pytest.raises(UserError, match="in.jsonl:2: has the keys text, the first row"):
        rewritten(tmp_path, lines, "in.jsonl", "out.csv")
    rewritten(tmp_path, lines[:1], "in.jsonl", "table.csv", num_copies=1)
    with open(tmp_path / "table.csv", newline="") as file:
        assert list(csv.reader(file))[1] == ["of the\tfilm\n", "1", ""]
    with pytest.raises(UserError, match="in.jsonl:1: an empty text, which a .tsv of"):
        rewritten(tmp_path, lines[1:], "in.jsonl")


def test_ngrams(tmp_path):
    rows = rewritten(
        tmp_path, LINES[:3], mask_probability=0.0, ngram_probability=1.0, num_copies=20
    )
    for row in rows[1:]:
        assert any(row in line for line in LINES)
        assert row in LINES or len(row.split()) <= 5
    assert len(rows) > 20


@pytest.mark.skipif(not ROBERTA, reason="family/roberta is not there")
def test_a_byte_level_vocabulary_without_segments(tmp_path):
    vocab = str(tests.GOLDEN / "byte_bpe")
    config = dataclasses.replace(
        ROBERTA,
        vocab_size=905,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    (tmp_path / "bert_config.json").write_text(config.to_json_string())
    network = masked_lm.MaskedLM().network(config)
    weights = {v.path: v.numpy() for v in network.weights}
    checkpoint.write_bundle(str(tmp_path / "bert_model.ckpt"), weights)
    lines = ["The simple form is equivalent, isn't it?", "오늘 날씨가 좋네요"]
    given = {"init_checkpoint": str(tmp_path), "vocab_file": vocab}
    rows = rewritten(tmp_path, lines, mask_probability=0.8, **given)
    tokenizer = TokenizerOptions().load_tokenizer(vocab)
    allowed = rewriting.candidates_of(tokenizer.vocabulary)
    texts = {tokenizer.vocabulary.texts[id].lower() for id in np.flatnonzero(allowed)}
    of_first = rows[1 : rows.index(lines[1])]
    assert len(of_first) == 7
    for row in of_first:
        *words, clitic, last = row.split()
        assert clitic == "isn't" and words[-1].endswith(",")
        known = texts | {"the", "simple", "form", "is", "equivalent", "it"}
        assert {word.strip(",?").lower() for word in (*words, last)} <= known


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"num_copies": 0}, "--num_copies=0: must be from 1"),
        ({"mask_probability": 1.5}, "--mask_probability=1.5: must be from 0 to 1"),
        ({"mask_probability": 0.0}, "--ngram_probability are both 0"),
        ({"random_seed": -1}, "--random_seed=-1: must be at least 0"),
        ({"max_seq_length": 8}, "--max_seq_length=8: must be from 16"),
        (
            {"max_seq_length": 512},
            "only max_position_embeddings=128; pass --max_seq_length=128 or",
        ),
        ({"text_columns": ["text", "text"]}, "text is repeated"),
        ({"text_columns": ["a"]}, "text.txt:1: has no column 'a', only 'text'; check"),
        ({"output_file": "/nowhere/out.tsv"}, "there is no folder /nowhere"),
        ({"output_file": "/"}, "/: is a folder; name a file in it"),
        ({"lines": []}, "text.txt: contains no text"),
        ({"lines": ["a\tb"]}, "text.txt:1: contains a tab, which a .tsv cannot hold"),
        ({"lines": ['{"text": 1}'], "name": "in.jsonl"}, "in.jsonl:1: 'text' is 1,"),
        ({"out": "text.txt"}, "is also an input"),
    ],
    ids=str,
)
def test_refusals(tmp_path, flags, message):
    with pytest.raises(UserError, match=message):
        rewritten(tmp_path, **flags)
    assert not (tmp_path / "out.tsv").exists()


def test_a_part_of_the_model_is_not_replaced(tmp_path):
    for path in (tests.GOLDEN / "checkpoint").glob("[bv]*"):
        shutil.copy(path, tmp_path)
    given = {"init_checkpoint": str(tmp_path), "out": "bert_config.json"}
    with pytest.raises(UserError, match="bert_config.json: is a part of the model in"):
        rewritten(tmp_path, **given)
    assert json.loads((tmp_path / "bert_config.json").read_text())


def test_a_vocabulary_of_parts_of_words_is_refused(tmp_path, monkeypatch):
    nothing = np.zeros(3, bool)
    monkeypatch.setattr(rewriting, "candidates_of", lambda vocabulary: nothing)
    with pytest.raises(UserError, match="vocab.txt: contains no whole words to put"):
        rewritten(tmp_path)


def test_batches_that_cannot_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "total", lambda: 10**6)
    monkeypatch.setattr(capacity, "check_network", lambda *given, **more: None)
    monkeypatch.setattr(capacity, "_has_accelerators", lambda: False)
    flags = of_augmentation(tmp_path) | {"output_file": str(tmp_path / "out")}
    message = "batch_size=1048576: a pass over 1,048,576 rows of"
    refused(message, augment, flags, batch_size=2**20)
    assert not (tmp_path / "out").exists()
