"""BiLSTM layers on a table of word embeddings: trained, resumed, exported, converted."""

import json

import numpy as np
import pytest

import convert_checkpoint
import extract_features
import fill_mask
import run_classifier
import run_ner
import run_squad
from training.storage.source import read_config
from errors import UserError
from modeling.architectures.word_vectors import WordEmbeddingsConfig
from tests import jobs, ner, pretraining, squad, tiny

LSTM = {"lstm_layers": 1, "lstm_size": 6}
TABLE = "word_embeddings/table"


def config(vocab_size, **changes):
    return WordEmbeddingsConfig(vocab_size, hidden_size=8, **changes)


def write_files(folder, **changes):
    """The order of the words, which no mean of vectors tells, is the label."""
    tiny.write(folder, "ab", config(7, **changes))
    lines = [f"{'ab' if i % 2 else 'ba'} {'xy'[i % 2]}" for i in range(32)]
    lines = [f"{words[0]} {words[1]}\t{words[3]}" for words in lines]
    for name in ("train", "dev", "test"):
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
    return folder


def flags(folder, **changes):
    own = {
        "task_name": "custom",
        "data_dir": str(folder),
        "max_seq_length": 16,
        "num_train_epochs": [10.0],
        "learning_rate": [3e-2],
        "save_checkpoints_steps": 10,
        "layerwise_lr_decay": 0.8,
    }
    return jobs.flags(folder, **own | LSTM | changes)


def classify(folder, **changes):
    jobs.run(run_classifier, flags(folder, **changes))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder after a run; only to be read."""
    folder = write_files(tmp_path_factory.mktemp("words"))
    does = ("do_train", "do_eval", "do_predict", "do_export")
    classify(folder, **dict.fromkeys(does, True), gradient_accumulation_steps=2)
    return folder


@pytest.mark.exhaustive
def test_a_bilstm_on_vectors_learns_what_order_tells_and_answers_raw_text(trained):
    assert jobs.results(trained)["eval_accuracy"] == 1.0
    weights = jobs.weights(trained)
    assert weights[TABLE].shape == (7, 8) and f"{TABLE}/adam_m" in weights
    jobs.check_export(trained)


TASKS = {
    "squad": (run_squad, squad, "eval_f1"),
    "ner": (run_ner, ner, "eval_f1"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TASKS)
def test_every_task_trains(tmp_path, untraced, name):
    script, files, score = TASKS[name]
    files.write_files(tmp_path)
    size = len((tmp_path / "vocab.txt").read_text().split())
    (tmp_path / "config.json").write_text(config(size).to_json_string())
    given = files.flags(tmp_path, num_train_epochs=[0.5], dtype="mixed_bfloat16")
    jobs.run(script, given | LSTM | {"do_train": True, "do_eval": True})
    assert 0 <= jobs.results(tmp_path)[score]
    if name != "ner":
        return
    # A table counts as a layer, whose outputs may be the features of a frozen encoder.
    given |= {"features": "last", "init_checkpoint": str(tmp_path / "output")}
    given |= {"output_dir": str(tmp_path / "frozen"), "init_encoder_only": True}
    jobs.run(script, given | LSTM | {"do_train": True})
    before, after = jobs.weights(tmp_path), jobs.weights(tmp_path, "frozen")
    np.testing.assert_array_equal(before[TABLE], after[TABLE])
    with pytest.raises(UserError, match="features=sum_last_four: .*layers=1"):
        jobs.run(script, given | {"do_train": True, "features": "sum_last_four"})


@pytest.mark.without_family
def test_vectors_of_a_text_are_rows_of_the_table(trained, tmp_path, untraced):
    (tmp_path / "texts").write_text("a b ||| a\n")
    given = {
        "input_file": str(tmp_path / "texts"),
        "output_file": str(tmp_path / "features"),
        "init_checkpoint": str(trained / "output"),
        "max_seq_length": 600,
    }
    jobs.run(extract_features, given)
    line = json.loads((tmp_path / "features").read_text())
    table = jobs.weights(trained)[TABLE]
    ids = [2, 5, 6, 3, 5, 3]
    for id, token in zip(ids, line["features"], strict=True):
        (layer,) = token["layers"]
        assert layer["values"] == pytest.approx(table[id], abs=1e-6)
    with pytest.raises(UserError, match="no layer -2; the model has 1, from 0 to 0"):
        jobs.run(extract_features, given | {"layers": [-2]})
    with pytest.raises(UserError, match="the same for every text; use --pooling=mean"):
        jobs.run(extract_features, given | {"pooling": "cls"})


def test_conversion_averages_and_refuses_what_has_no_counterpart(trained, tmp_path):
    output = str(trained / "output")
    given = {"input": [output, output], "output_dir": str(tmp_path / "mean")}
    jobs.run(convert_checkpoint, given)
    learned, mean = jobs.weights(trained), jobs.weights(tmp_path, "mean")
    assert {k for k in learned if "adam" not in k} >= mean.keys() > {TABLE}
    for name, value in mean.items():
        np.testing.assert_array_equal(value, learned[name])
    assert read_config(str(tmp_path / "mean")) == config(7)
    (tmp_path / "words").write_text("c\n")
    given = {"input": [output], "output_dir": str(tmp_path / "new")}
    with pytest.raises(UserError, match="no names for the architecture 'word_embeddi"):
        jobs.run(convert_checkpoint, given | {"layout": "hugging_face"})
    with pytest.raises(UserError, match="the model has no table of positions"):
        jobs.run(convert_checkpoint, given | {"max_position_embeddings": 900})
    assert not (tmp_path / "new").exists()
    jobs.run(convert_checkpoint, given | {"add_words_file": str(tmp_path / "words")})
    assert jobs.weights(tmp_path, "new")[TABLE].shape == (8, 8)


def test_what_needs_context_is_refused_in_one_line(trained, tmp_path):
    with pytest.raises(UserError, match="not in the checkpoint: cls/predictions"):
        given = {"init_checkpoint": str(trained / "output"), "text": "a [MASK]"}
        jobs.run(fill_mask, given | {"vocab_file": str(trained / "vocab.txt")})
    for pooling in ("first", "last"):
        with pytest.raises(UserError, match="has no choice of --pooling"):
            plain = {"lstm_layers": 0, "lstm_size": None, "pooling": pooling}
            classify(trained, do_eval=True, **plain)
    for changes in ({}, {"dry_run": True}):
        with pytest.raises(UserError, match="sees only its own token"):
            pretraining.run(tmp_path, config=config(3000), **changes)
    assert not (tmp_path / "output").exists()
