"""--lstm_layers: BiLSTM layers between an encoder that is fine-tuned and its head."""

import contextlib
import dataclasses
import io
import shutil

import numpy as np
import pytest

import convert_checkpoint
import run_classifier
import run_ner
from training.backend import tf
from errors import UserError
from modeling import layers
from modeling.bilstm import BiLstm
from modeling.objectives import masked_lm, tasks
from tests import jobs, ner, numpy_lstm, squad, tiny

LENGTHS = (5, 1, 8)
SIZE = 6
HEADS = {
    "one label": lambda: tasks.Classification(3),
    "several": lambda: tasks.MultiLabel(4),
    "number": tasks.Regression,
    "choice": tasks.Choice,
    "span": tasks.Span,
    "tags": lambda: tasks.Tagging(5),
}
CONFIG = tiny.config(
    initializer_range=0.3, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.0
)


def batch(padding=0):
    rng = np.random.default_rng(0)
    ids = np.zeros((len(LENGTHS), max(LENGTHS) + padding), np.int32)
    for row, length in zip(ids, LENGTHS, strict=True):
        row[:length] = rng.integers(1, 40, length)
    mask = (ids > 0).astype(np.int32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}


def network(head, num_layers=2, **changes):
    objective = HEADS[head]()
    objective.lstm = BiLstm(num_layers, SIZE)
    return objective.network(dataclasses.replace(CONFIG, **changes), seed=3)


def outputs(model, head, inputs, **given):
    """Arrays [rows, ...] of the logits of one batch, by name."""
    if head == "choice":  # the rows are the choices of one question
        inputs = {name: values[None] for name, values in inputs.items()}
    found = {name: np.array(x) for name, x in model(inputs, **given).items()}
    return {name: x[0] for name, x in found.items()} if head == "choice" else found


# --- The network ---------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("head", HEADS)
def test_heads_read_the_states_of_both_directions(head):
    model = network(head)
    hidden = np.array(model.encoder(batch())["sequence_output"])
    weights = {variable.path: variable.numpy() for variable in model.weights}
    scope = "cls/squad/" if head == "span" else ""
    matrix = weights[f"{scope}output_weights"].T
    bias = weights.get(f"{scope}output_bias", 0.0)
    expected = []
    for row, length in zip(hidden, LENGTHS, strict=True):
        states = numpy_lstm.bilstm(row[:length], weights, 2)
        if head not in ("span", "tags"):
            states = np.concatenate([states[-1, :SIZE], states[0, SIZE:]])
        expected.append(states @ matrix + bias)
    for padding in (0, 7):  # further padding has no influence
        found = outputs(model, head, batch(padding))
        for i, (row, length) in enumerate(zip(expected, LENGTHS, strict=True)):
            if head == "span":
                mine = [found[f"{x}_logits"][i, :length] for x in ("start", "end")]
                mine = np.stack(mine, axis=-1)
            elif head == "tags":
                mine = found["logits"][i, :length]
            else:
                mine = found["logits"][i].reshape(row.shape)
            np.testing.assert_allclose(mine, row, rtol=0, atol=2e-6)


@pytest.mark.parametrize("head", ["one label", "span", "tags"])
def test_the_input_of_every_layer_has_dropout_and_the_head_its_own(head):
    seen = []

    class Noting(layers.Dropouts):
        def __call__(self, x, rate):
            seen.append((x.shape[-1], rate))
            return x

    outputs(network(head), head, batch(), dropouts=Noting([1, 2]))
    own = [] if head == "span" else [2 * SIZE]  # as in the release
    widths = 16, 2 * SIZE, *own
    assert seen[-len(widths) :] == [(width, 0.2) for width in widths]


def test_a_span_may_be_read_from_right_to_left_with_them():
    config = tiny.config(attention_direction="right_to_left")
    objective = tasks.Span()
    with pytest.raises(UserError, match="no token .* sees the question"):
        objective.check(config)
    objective.lstm = BiLstm(1, SIZE)
    objective.check(config)


@pytest.mark.exhaustive
def test_xla_compiles_them_with_their_gradients():
    objective = tasks.Classification(2)
    objective.lstm = BiLstm(1, SIZE, fused=False)
    model = objective.network(CONFIG, seed=3)
    inputs = batch() | {"label_ids": np.array([0, 1, 1])}

    def gradients():
        with tf.GradientTape() as tape:
            loss, _ = objective.losses(inputs, model(inputs))["loss"]
        watched = [w.value for w in model.lstms[0].weights]
        return tape.gradient(loss, watched)

    compiled = tf.function(gradients, jit_compile=True)()
    for one, other in zip(compiled, gradients(), strict=True):
        assert np.abs(other).max() > 1e-3
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


# --- A whole run ---------------------------------------------------------------------

LSTM = {"lstm_layers": 2, "lstm_size": SIZE}
WHOLE = {"do_train": True, "do_eval": True, "do_predict": True, "do_export": True}


def classifier_flags(folder, **changes):
    own = {
        "task_name": "custom",
        "data_dir": str(folder),
        "max_seq_length": 16,
        "num_train_epochs": [10.0],
        "learning_rate": [1e-2],
        "save_checkpoints_steps": 10,
        "init_checkpoint": str(folder / "encoder"),
    }
    return jobs.flags(folder, **own | LSTM | changes)


def classify(folder, **changes):
    jobs.run(run_classifier, classifier_flags(folder, **changes))


def write_files(folder):
    """The first word tells the label; encoder/ holds one that reads to the right."""
    config = tiny.config(attention_direction="left_to_right")
    tiny.write(folder, "abc", config)
    lines = [
        f"{'ab'[number % 2]}{' c' * (number % 9)}\t{'xy'[number % 2]}"
        for number in range(32)
    ]
    for name in ("train", "dev", "test"):
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
    ner.save_encoder(folder, config)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder after a whole run with accumulation; what it said is in said.txt."""
    folder = write_files(tmp_path_factory.mktemp("lstm"))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        classify(folder, **WHOLE, gradient_accumulation_steps=2)
    (folder / "said.txt").write_text(said.getvalue())
    return folder


@pytest.mark.exhaustive
def test_a_classifier_learns_says_what_it_reads_and_answers_raw_text(trained):
    said = (trained / "said.txt").read_text()
    assert "on 1 device; its head reads 2 BiLSTM layers of 6 units each way\n" in said
    assert "left at their initial value (14): lstm_0/backward_lstm/lstm_cell" in said
    assert jobs.results(trained)["eval_accuracy"] == 1.0
    before, after = jobs.weights(trained, "encoder"), jobs.weights(trained)
    name = "bert/encoder/layer_0/output/dense/kernel"
    assert np.any(before[name] != after[name])  # it is not frozen
    assert after["lstm_1/backward_lstm/lstm_cell/kernel"].shape == (12, 4 * SIZE)
    assert "lstm_1/backward_lstm/lstm_cell/kernel/adam_m" in after
    description = jobs.check_export(trained)
    assert (description["lstm_layers"], description["lstm_size"]) == (2, SIZE)


@pytest.mark.exhaustive
def test_later_commands_must_ask_for_the_same_layers(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "copy")
    output = folder / "output"
    (output / "eval_results.json").unlink()
    classify(folder, do_eval=True, length_buckets=False)  # padded to the full length
    mine, theirs = jobs.results(folder), jobs.results(trained)
    assert mine == pytest.approx(theirs, rel=1e-5)
    none = {"lstm_layers": 0, "lstm_size": None}
    for changes, message in (
        (none, "was trained with --lstm_layers=2 --lstm_size=6; pass the same"),
        ({"lstm_layers": 1}, "was trained with --lstm_layers=2 --lstm_size=6; pass"),
        ({"lstm_size": 8}, "was trained with --lstm_layers=2 --lstm_size=6; pass"),
    ):
        with pytest.raises(UserError, match=message):
            classify(folder, do_eval=True, **changes)
        with pytest.raises(UserError, match=message):
            elsewhere = {"output_dir": str(tmp_path / "new")}
            start = {"init_checkpoint": str(output)}
            classify(folder, do_predict=True, **changes | elsewhere | start)
    training = {"do_train": True, "gradient_accumulation_steps": 2}
    with pytest.raises(UserError, match="lstm_layers was 2 and is now 0; lstm_size"):
        classify(folder, **training, **none)
    with pytest.raises(UserError, match="lstm_size was 6 and is now 768"):
        classify(folder, **training, lstm_size=None)


@pytest.mark.exhaustive
def test_a_model_without_layers_is_not_asked_for_any(trained, untraced, tmp_path):
    plain = {"lstm_layers": 0, "lstm_size": None, "num_train_epochs": [1.0]}
    plain |= {"output_dir": str(tmp_path / "output")}
    classify(trained, **plain, do_train=True)
    assert '"lstm' not in (tmp_path / "output" / "task.json").read_text()
    with pytest.raises(UserError, match="has no BiLSTM layers; remove --lstm_layers"):
        classify(trained, **plain | LSTM, do_eval=True)
    with pytest.raises(UserError, match="lstm_layers was 0 and is now 2"):
        classify(trained, **plain | LSTM, do_train=True)


@pytest.mark.exhaustive
def test_hugging_faces_layout_has_no_name_for_them(trained, tmp_path):
    given = {"input": [str(trained / "output")], "output_dir": str(tmp_path / "theirs")}
    with pytest.raises(UserError, match="lstm_0/.*: Hugging Face's layout has no name"):
        jobs.run(convert_checkpoint, given | {"layout": "hugging_face"})
    assert not (tmp_path / "theirs").exists()
    jobs.run(convert_checkpoint, given)
    ours, copied = jobs.weights(trained), jobs.weights(tmp_path, "theirs")
    for name in ("lstm_1/forward_lstm/lstm_cell/bias", "output_weights"):
        np.testing.assert_array_equal(ours[name], copied[name])


@pytest.mark.exhaustive
def test_a_span_is_trained_and_evaluated_with_them(untraced, tmp_path):
    squad.write_files(tmp_path)
    changes = LSTM | {"lstm_layers": 1, "dtype": "mixed_bfloat16"}
    squad.run(tmp_path, **changes, num_train_epochs=[0.3], do_train=True)
    weights = jobs.weights(tmp_path)
    assert np.any(weights["lstm_0/backward_lstm/lstm_cell/kernel/adam_m"])
    squad.run(tmp_path, **changes, do_eval=True)
    assert np.isfinite(jobs.results(tmp_path)["loss"])


# --- Refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lstm_layers": -1}, "--lstm_layers=-1: must be from 0"),
        ({"lstm_size": 0}, "--lstm_size=0: must be from 1 to"),
        ({"lstm_layers": 0}, "--lstm_size=6 has no effect without BiLSTM layers; pass"),
        ({"pooling": "mean"}, "--pooling=mean has no effect with --lstm_layers"),
        (
            {"export_formats": ["litert"], "do_export": True},
            "LiteRT's converter fails on BiLSTM layers",
        ),
    ],
)
def test_flags_without_a_meaning_are_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run_classifier.Options(**classifier_flags(tmp_path, do_train=True, **changes))


def test_features_take_two_layers_or_as_many_as_asked(tmp_path):
    def lstm(**changes):
        flags = ner.flags(tmp_path, do_eval=True, features="last", **changes)
        return run_ner.Options(**flags).lstm

    assert lstm()[:2] == (2, 768)
    assert lstm(lstm_size=5)[:2] == (2, 5)
    assert lstm(lstm_layers=1)[:2] == (1, 768)


def test_an_objective_that_makes_its_own_network_is_refused(tmp_path):
    given = run_classifier.Options(**classifier_flags(tmp_path, do_eval=True))
    with pytest.raises(UserError, match="MaskedLM makes its own network"):
        given.with_lstm(masked_lm.MaskedLM())
