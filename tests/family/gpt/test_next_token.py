"""Language modelling: the loss of the release, in parts as at once, and whole runs."""

import dataclasses
import math
import sys

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import fill_mask
import tests
from errors import UserError
from family.gpt import next_token
from family.gpt.encoder import GptConfig
from modeling import custom_gradients, layers, losses
from modeling.architectures.bert import BertConfig
from tests import by_source, jobs, tiny
from tests import test_run_pretraining_distilled as distilled
from tests.pretraining import RECORDS, TINY, results, run, run_on
from tests.records import make_records

GOLDEN = tests.GOLDEN / "checkpoint"
VOCAB_FILE = str(GOLDEN / "vocab.txt")


def random_rows(number=37, width=8, vocab_size=50):
    rng = np.random.default_rng(0)
    return (
        *(
            tf.constant(rng.normal(size=shape), tf.float32)
            for shape in ((number, width), (vocab_size, width), (vocab_size,))
        ),
        tf.constant(rng.integers(0, vocab_size, number)),
        tf.constant(rng.uniform(size=number), tf.float32),
    )


def at_once(hidden, table, bias, labels, weights):
    logits = ops.matmul(hidden, ops.transpose(ops.cast(table, hidden.dtype)))
    logits = ops.cast(logits, "float32") + bias
    return (
        losses.cross_entropy(logits, labels, weights)[0],
        losses.accuracy(logits, labels, weights)[0],
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("rows", "varying", "dtype", "close"),
    [(5, 0, "float32", 1e-5), (37, 0, "bfloat16", 0.1), (5, 1, "float32", 1e-5)],
)
def test_in_parts_it_is_the_loss_and_the_gradient_at_once(
    monkeypatch, rows, varying, dtype, close
):
    monkeypatch.setattr(losses, "LOGIT_BYTES", rows * 50 * 4)
    hidden, table, bias, *labels = random_rows()
    hidden = tf.cast(hidden, dtype)

    @tf.function(autograph=False)
    def derived(function):
        with custom_gradients.use_gradients(), tf.GradientTape() as tape:
            tape.watch([hidden, table, bias])
            # All rows, but their number is not known when the graph is made.
            number = tf.shape(tf.where(hidden[:, 0] < np.inf))[0]
            own = [x[:number] if varying else x for x in (hidden, *labels)]
            loss, correct = function(own[0], table, bias, *own[1:])
            scaled = 3.0 * loss
        return loss, correct, *tape.gradient(scaled, [hidden, table, bias])

    expected = derived(at_once)
    for mine, other in zip(
        derived(losses.vocabulary_cross_entropy), expected, strict=True
    ):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=close, atol=close)
    without = losses.vocabulary_cross_entropy(hidden, table, bias, *labels)
    np.testing.assert_allclose(without, expected[:2], rtol=1e-6)


def test_losses_by_source_are_those_of_its_rows(monkeypatch):
    """Though the network adds up a batch, in parts of five tokens."""
    monkeypatch.setattr(losses, "LOGIT_BYTES", 5 * 40 * 4)
    by_source.check(next_token.NextToken(), attention_direction="left_to_right")


ON_JAX = """
import numpy as np, jax
from keras import ops
from modeling import custom_gradients, layers, losses
losses.LOGIT_BYTES = 5 * 50 * 4
rng = np.random.default_rng(0)
h, t, b = (rng.normal(size=s).astype("f") for s in ((37, 8), (50, 8), (50,)))
labels, weights = rng.integers(0, 50, 37), rng.uniform(size=37).astype("f")
def at_once(h, t, b):
    return losses.cross_entropy(ops.matmul(h, ops.transpose(t)) + b, labels, weights)[0]
def in_parts(h, t, b):
    return losses.vocabulary_cross_entropy(h, t, b, labels, weights)[0]
for compiled in (lambda f: f, jax.jit):
    with custom_gradients.use_gradients():
        found, expected = (
            jax.tree.leaves(compiled(jax.value_and_grad(f, (0, 1, 2)))(h, t, b))
            for f in (in_parts, at_once)
        )
    assert len(found) == 4
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)
print("equal")
"""


@pytest.mark.exhaustive
def test_jax_has_the_same_gradient():
    env = jobs.ENVIRONMENT | {"KERAS_BACKEND": "jax"}
    done = jobs.finished([sys.executable, "-c", ON_JAX], env=env)
    assert done.stdout.strip() == "equal", done.stderr


@pytest.mark.parametrize("case", ["full", "padded"])
def test_the_loss_is_that_of_the_releases_head(case):
    """Under the mask that hides what follows."""
    with np.load(GOLDEN / "model_outputs.npz") as file:
        batch = {key[3:]: file[key] for key in file if key.startswith("in_")}
    with np.load(GOLDEN / "directions.npz") as file:
        golden = dict(file)
    lengths = golden["lengths_of_padded"] if case == "padded" else np.full(8, 64)
    for name in ("input_ids", "input_mask", "segment_ids"):
        batch[name] = np.where(np.arange(64) < lengths[:, None], batch[name], 0)
    config = dataclasses.replace(
        BertConfig.from_json_file(GOLDEN / "bert_config.json"),
        attention_direction="left_to_right",
    )
    objective = next_token.NextToken()
    model = objective.network(config)
    released = tf.train.load_checkpoint(str(GOLDEN / "bert_model.ckpt"))
    for variable in model.weights:
        variable.assign(released.get_tensor(variable.path))
    outputs = model(batch)
    loss, weight = objective.losses(batch, outputs)["next_token_loss"]
    assert float(weight) == lengths.sum() - 8
    found = losses.mean(loss, weight)
    expected = golden[f"plain/{case}_ltr_next_token_loss"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert objective.summary.compute({"next_token_loss": float(found)}, ()) == {
        "perplexity": math.exp(float(found))
    }


def test_from_right_to_left_it_is_the_mirror():
    """Reversed rows and positions, read from the other side, have the same loss."""
    ids = np.random.default_rng(0).integers(1, 40, (3, 12))
    config = tiny.config(attention_direction="left_to_right")
    objective = next_token.NextToken()
    found = []
    for direction in ("left_to_right", "right_to_left"):
        turned = direction == "right_to_left"
        model = objective.network(
            dataclasses.replace(config, attention_direction=direction)
        )
        positions = model.encoder.embeddings.position_embeddings
        if turned:
            order = [*range(12)][::-1] + [*range(12, 40)]
            positions.assign(positions.numpy()[order])
        batch = {"input_ids": ids[:, ::-1] if turned else ids}
        batch["input_mask"] = np.ones_like(ids)
        found.append(float(model(batch)["next_token_loss"]))
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_rows_that_only_fill_a_batch_do_not_count():
    ids = np.random.default_rng(0).integers(1, 40, (2, 12))
    objective = next_token.NextToken()
    model = objective.network(tiny.config(attention_direction="left_to_right"))
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    one = objective.losses(batch, model({k: v[:1] for k, v in batch.items()}))
    batch["is_real_example"] = np.array([1.0, 0.0], np.float32)
    outputs = model(batch)
    (loss, weight) = objective.losses(batch, outputs)["next_token_loss"]
    assert float(loss) == pytest.approx(float(one["next_token_loss"][0]), rel=1e-6)
    assert float(weight) == float(objective.weights(batch)["next_token_loss"]) == 11.0


@pytest.mark.parametrize(
    "config",
    [
        tiny.config(attention_direction="left_to_right"),
        GptConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
        ),
    ],
    ids=["bert", "gpt"],
)
def test_in_bfloat16_the_network_gives_about_the_same_loss_and_gradient(config):
    ids = np.random.default_rng(0).integers(1, 40, (4, 12))
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    found = []
    for dtype in ("float32", "mixed_bfloat16"):
        model = next_token.NextToken().network(config, dtype=dtype)
        with tf.GradientTape() as tape:
            dropouts = layers.Dropouts(np.array([0, 0]))
            loss = model(batch, dropouts=dropouts)["next_token_loss"]
        table = tape.gradient(loss, model.encoder.word_embeddings.value)
        found.append((loss, table))
    (loss, table), (rounded_loss, rounded_table) = found
    assert float(rounded_loss) == pytest.approx(float(loss), rel=1e-2)
    scale = float(tf.reduce_max(tf.abs(table)))
    np.testing.assert_allclose(rounded_table, table, atol=0.05 * scale)


# --- runs ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return make_records(tmp_path_factory.mktemp("records"), masking="dynamic")


def causal(**changes):
    return dataclasses.replace(TINY, attention_direction="left_to_right", **changes)


@pytest.mark.exhaustive
def test_a_run_learns_reports_perplexity_and_resumes(records, tmp_path, capsys):
    changes = {
        "config": causal(),
        "objective": "next_token",
        "input_file": [records],
        "num_train_steps": 30,
        "learning_rate": 1e-2,
        "do_eval": True,
        "save_checkpoints_steps": 20,
    }
    (tmp_path / "whole").mkdir()
    run(tmp_path / "whole", **changes)
    found = {k: float(v) for k, v in results(tmp_path / "whole").items()}
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-5)
    assert found["loss"] < math.log(3000) - 0.5 and found["next_token_accuracy"] > 0
    run_on(tmp_path, capsys, 20, **changes)
    output = str(tmp_path / "whole" / "output")
    # Its weights are not taken for those of another network or objective.
    whole = {**changes, "do_train": False, "num_train_steps": 30}
    with pytest.raises(UserError, match="attention_direction is 'right_to_left', but"):
        right = dataclasses.replace(TINY, attention_direction="right_to_left")
        run(tmp_path / "whole", **whole | {"config": right})
    with pytest.raises(UserError, match="its run has --objective=next_token; pass the"):
        run(tmp_path / "whole", **whole | {"objective": "masked_lm"})
    given = {"init_checkpoint": output, "vocab_file": VOCAB_FILE, "text": "a [MASK]"}
    with pytest.raises(UserError, match="next_token, which does not fill masks"):
        fill_mask.main(fill_mask.Options(**given))
    # Its encoder and head are those of the masked LM, for a model of the same direction.
    (tmp_path / "next").mkdir()
    kept = {**changes, "num_train_steps": 2, "init_checkpoint": output}
    with pytest.raises(UserError, match="attention_direction is 'both', but"):
        run(tmp_path / "next", **kept | {"config": TINY, "objective": "masked_lm"})
    with jobs.untraced():
        run(tmp_path / "next", **kept | {"objective": "masked_lm"})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"config": TINY}, "attention to both sides, every position sees the token"),
        (
            {"input_file": [RECORDS]},
            "the tokens of these records are masked, .*dynamic",
        ),
        (
            {
                "do_export": True,
                "vocab_file": VOCAB_FILE,
                "config": dataclasses.replace(
                    TINY, attention_direction="right_to_left"
                ),
            },
            'exports of --objective=next_token need "attention_direction": "left_to_right"',
        ),
        (
            {
                "do_export": True,
                "vocab_file": str(tests.GOLDEN / "sentencepiece" / "xlnet.model"),
            },
            "rows do not begin with a token of their own, which an export",
        ),
    ],
)
def test_what_cannot_be_learned_is_refused(records, tmp_path, changes, message):
    given = {"config": causal(), "objective": "next_token", "input_file": [records]}
    with pytest.raises(UserError, match=message):
        run(tmp_path, **given | changes)


def test_its_answers_are_not_compared_with_a_teacher():
    assert not next_token.NextToken().comparison


# A teacher and a student of a distillation by words fill masks, which no GPT does.


given = distilled.given
CAUSAL = dataclasses.replace(TINY, attention_direction="left_to_right")


def test_next_tokens_are_not_learned_from_a_teacher(given, tmp_path):
    message = (
        "next_token does not learn masked words, .* use masked_lm_next_sentence or"
    )
    with pytest.raises(UserError, match=message):
        distilled.run(tmp_path, **given | {"objective": "next_token", "config": CAUSAL})


def test_a_teacher_that_predicts_next_tokens_is_refused(given, tmp_path):
    network = next_token.NextToken().network(CAUSAL)
    folder = distilled.write(
        tmp_path / "causal", network, CAUSAL, objective="next_token"
    )
    message = "next_token, which does not fill masks; use"
    distilled.refused(tmp_path, given, folder, message)
    assert not (tmp_path / "output").exists()
