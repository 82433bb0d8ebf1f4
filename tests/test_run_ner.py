"""run_ner.py as a user meets it: files, columns, numbers, a frozen encoder, a kill."""

import contextlib
import dataclasses
import io
import json
import shutil

import numpy as np
import pytest

from errors import UserError
from modeling.architectures.bert import BertEncoder
from serving import predictor
from tests import jobs, tiers
from tests.jobs import results
from tests.ner import TINY, VOCABULARY, conll, run, save_encoder, write_files
from tests.text.tasks.test_tags import conlleval
from text.tasks import tags


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


WHOLE = {"do_train": True, "do_eval": True, "do_predict": True, "do_export": True}


def run_whole(folder, **changes):
    """Does all that a run can do; what it says goes to said.txt."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        run(folder, **WHOLE, **changes)
    (folder / "said.txt").write_text(said.getvalue())
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder after a whole run."""
    folder = write_files(tmp_path_factory.mktemp("plain_run"))
    with jobs.untraced():
        return run_whole(folder, num_train_epochs=[4.0])


TWO_LAYERS = dataclasses.replace(TINY, num_hidden_layers=2)
FROZEN = {
    "document_context": True,
    "tag_scheme": "iobes",
    "max_seq_length": 24,
    "features": "weighted_sum_all",
    "lstm_size": 12,
    "num_train_epochs": [10.0],
    "save_checkpoints_steps": 10,
    "log_every_steps": 5,
}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """The same with features of an encoder that does not change, of rows filled with
    other sentences; dev.txt names no documents."""
    folder = write_files(tmp_path_factory.mktemp("frozen_run"), TWO_LAYERS)
    text = (folder / "dev.txt").read_text().replace("-DOCSTART- -X- -X- O\n", "")
    (folder / "dev.txt").write_text(text)
    save_encoder(folder, TWO_LAYERS)
    return run_whole(folder, init_checkpoint=str(folder / "encoder"), **FROZEN)


# --- Runs ----------------------------------------------------------------------------


def test_from_training_to_tags_beside_the_words(plain):
    output = plain / "output"
    assert {path.name for path in output.iterdir()} >= {
        "bert_config.json",
        "eval_results.txt",
        "mistakes.html",
        "model.ckpt-24.index",  # 48 / 8 * 4
        "predictions.txt",
        "task.json",
    }
    found = results(plain)
    names = [
        f"{score}{kind}"
        for score in ("f1", "precision", "recall")
        for kind in ("", "_LOC", "_PER")
    ]
    assert set(found) == {
        *(f"eval_{name}" for name in (*names, "accuracy", "loss")),
        "global_step",
        "loss",
    }
    assert found["eval_f1"] > 0.9
    before = (plain / "test.txt").read_text().splitlines()
    after = (output / "predictions.txt").read_text().splitlines()
    assert len(before) == len(after)
    right = 0
    for old, new in zip(before, after, strict=True):
        assert new == old or (
            new.startswith(f"{old} ") and tags.is_tag(new.split()[-1])
        )
        right += new == f"{old} {old.split(' ')[-1]}"
    assert right > 0.9 * sum(bool(line) for line in before)
    state = json.loads((output / "task.json").read_text())
    assert state["entity_types"] == ["LOC", "PER"]
    assert state["tag_scheme"] == "iob1"
    assert "train: 48 examples, 48 rows; " in (plain / "said.txt").read_text()


def encoder_of(weights):
    encoder = BertEncoder(TINY)
    for variable in encoder.weights:
        variable.assign(weights[variable.path])
    return encoder


def by_hand(encoder, weights, words):
    """Tags of a sentence from the encoder alone."""
    pieces, firsts = ["[CLS]"], []
    for word in words:
        firsts.append(len(pieces))
        pieces += [word[0], *(f"##{letter}" for letter in word[1:])]
    ids = [VOCABULARY.index(piece) for piece in [*pieces, "[SEP]"]]
    hidden = np.array(encoder({"input_ids": np.array([ids])})["sequence_output"])[0]
    logits = hidden[firsts] @ weights["output_weights"].T + weights["output_bias"]
    labels = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    return [labels[n] for n in logits.argmax(axis=1)]


def test_numbers_are_those_of_the_encoder_and_of_conlleval(folder, untraced):
    # Hardly trained it errs, and its tags are often broken.
    run(
        folder,
        do_train=True,
        do_eval=True,
        do_predict=True,
        test_file="dev.txt",
        num_train_epochs=[0.9],
        learning_rate=[1e-9],
    )
    lines = (folder / "output" / "predictions.txt").read_text().split("\n\n")
    weights = jobs.weights(folder)
    encoder, pairs = encoder_of(weights), []
    for block in lines:
        columns = [line.split() for line in block.strip().split("\n")]
        if len(columns[0]) == 5 and columns[0][0] != "-DOCSTART-":
            words, gold, predicted = ([c[i] for c in columns] for i in (0, 3, 4))
            expected = tags.entities(by_hand(encoder, weights, words))
            assert tags.mark(expected, len(words), "iob1") == predicted
            pairs.append(list(zip(gold, predicted, strict=True)))
    assert len(pairs) == 20
    gold, predicted, right = conlleval(pairs)
    found = results(folder)
    assert 0 < right < gold
    assert found["eval_precision"] == pytest.approx(right / predicted)
    assert found["eval_recall"] == pytest.approx(right / gold)
    assert found["eval_f1"] == pytest.approx(2 * right / (gold + predicted))
    same = [a == b for block in pairs for a, b in block]
    assert found["eval_accuracy"] == pytest.approx(np.mean(same))
    page = (folder / "output" / "mistakes.html").read_text()
    assert "no entity" in page and "[L" in page and "<th>probabilities</th>" in page


@pytest.mark.without_family
def test_evaluation_alone_knows_types_and_scheme(plain, tmp_path, untraced):
    folder = shutil.copytree(plain, tmp_path / "copy")
    trained = results(folder)
    (folder / "train.txt").unlink()
    run(folder, do_eval=True, do_predict=True)
    assert results(folder) == trained
    with pytest.raises(UserError, match="--entity_types is PER,LOC, but the model was"):
        run(folder, do_eval=True, entity_types=["PER", "LOC"])
    for changes, message in (
        ({"document_context": True}, "--document_context is True, but .* with False"),
        ({"features": "last"}, "--features is last, but the model was trained with"),
    ):
        with pytest.raises(UserError, match=message):
            run(folder, do_eval=True, **changes)
    # Tags of another scheme say the same.
    for scheme in tags.SCHEMES:
        (folder / "dev.txt").write_text(conll(20, 2, scheme))
        run(folder, do_eval=True)
        assert results(folder) == trained
    # So it is elsewhere, with this model; and of the test set, words are enough.
    words = "".join(f"{line.split(' ')[0]}\n" for line in conll(3, 4).splitlines())
    (folder / "test.txt").write_text(words)
    elsewhere = {
        "do_predict": True,
        "init_checkpoint": str(folder / "output"),
        "output_dir": str(folder / "elsewhere"),
    }
    run(folder, **elsewhere)
    after = (folder / "elsewhere" / "predictions.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in after] == words.splitlines()
    assert all(len(line.split(" ")) == 2 for line in after if line)


def test_columns_prefixes_and_broken_tags(folder, capsys, untraced):
    """As WikiANN's files, but the other way round and with a tag against IOB2."""
    text = "B-PER\tx\ten:Pa\nI-PER\tx\ten:Pb\nO\tx\ten:.\n\n"
    (folder / "train.txt").write_text(text * 8 + "I-LOC\tx\ten:L\n")
    (folder / "dev.txt").write_text(text + "\ufeff")
    (folder / "test.txt").write_text("O\tx\ten:Pa\r\n\t\nO\tx\ten:\r\n")
    columns = {"word_column": -1, "tag_column": "0", "word_prefix": "en:"}
    run(folder, do_train=True, do_eval=True, do_predict=True, **columns)
    printed = capsys.readouterr().out
    assert (
        f"1 tag(s) break the rules of iob2, the first in {folder}/train.txt:33"
        in printed
    )
    after = (folder / "output" / "predictions.txt").read_bytes().split(b"\n")
    before = (folder / "test.txt").read_bytes().split(b"\n")
    words = [line.removesuffix(b"\r").rpartition(b"\t")[0] for line in after]
    assert words == [b"O\tx\ten:Pa", b"", b"O\tx\ten:", b""]
    assert after[1] == before[1]
    assert after[0].endswith(b"\r") and after[2].endswith(b"\r")


def test_long_and_strange_words_keep_their_tags(plain, tmp_path, capsys, untraced):
    """From file to file; the first has more pieces than a row."""
    folder = shutil.copytree(plain, tmp_path / "copy")
    lines = ["P" + "a" * 60, "\x01", "b", "", *["La"] * 50, ""]
    (folder / "test.txt").write_text("\n".join(lines))
    run(folder, do_predict=True)
    after = (folder / "output" / "predictions.txt").read_text().split("\n")
    assert [line.rpartition(" ")[0] for line in after] == lines
    assert after[0].endswith("-PER")
    assert sum(line.endswith("-LOC") for line in after[4:54]) > 45
    printed = capsys.readouterr().out
    assert "1 words are longer than a row and cut" in printed
    assert "2 are longer than a row and read in parts" in printed


# --- A frozen encoder ----------------------------------------------------------------


@pytest.mark.exhaustive
def test_encoder_stays_as_it_is_under_features(frozen, tmp_path):
    said = (frozen / "said.txt").read_text()
    assert "20 have no -DOCSTART- line before them" in said
    trained = results(frozen)
    assert trained["eval_f1"] > 0.7
    before, after = jobs.weights(frozen, "encoder"), jobs.weights(frozen)
    for name, value in before.items():
        if name != "global_step":
            np.testing.assert_array_equal(after[name], value, err_msg=name)
            assert f"{name}/adam_m" not in after
    assert "lstm_0/backward_lstm/lstm_cell/kernel/adam_m" in after
    assert "layer_weights/adam_m" in after
    assert after["lstm_0/forward_lstm/lstm_cell/kernel"].shape == (16, 4 * 12)
    folder = shutil.copytree(frozen, tmp_path / "copy")
    changes = FROZEN | {"init_checkpoint": str(frozen / "encoder")}
    run(folder, do_eval=True, **changes)
    assert results(folder) == trained
    with pytest.raises(UserError, match="--features is none, but the model was"):
        run(folder, do_eval=True, document_context=True)
    with pytest.raises(UserError, match="with --lstm_layers=0 --lstm_size=12; pass"):
        run(folder, do_eval=True, **changes | {"lstm_layers": 2})
    with pytest.raises(UserError, match="features was 'weighted_sum_all' and is now"):
        run(folder, do_train=True, **changes | {"features": "last"})


# --- Kills ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", tiers.cases(["plain", "frozen"], ["plain"]))
def test_an_export_answers_as_the_run_that_made_it(request, kind):
    output = request.getfixturevalue(kind) / "output"
    blocks = (output / "predictions.txt").read_text().split("\n\n")
    columns = [
        [line.split(" ") for line in block.strip().split("\n")] for block in blocks
    ]
    requests, expected = [], []
    for sentence_ in columns:
        if sentence_[0][0] == "-DOCSTART-":
            requests.append({"words": []})
            expected.append([])
            continue
        requests[-1]["words"] += [*(cells[0] for cells in sentence_), ""]
        expected[-1] += [*(cells[-1] for cells in sentence_), ""]
    if kind == "frozen":
        requests = [request | {"before": "", "after": ""} for request in requests]
    found = predictor.Predictor(str(output)).predict(requests)
    assert len(expected) == 2
    assert [answer["tags"] for answer in found] == expected
