"""Generator and discriminator in one update: the release's numbers, with its drawings."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from errors import UserError
from family.electra import replaced_tokens, roc
from family.electra.encoder import ElectraConfig
from family.electra.replaced_tokens import update
from modeling import layers, losses
from modeling.architectures.bert import BertConfig
from modeling.distillation.distillation import Distillation
from modeling.masks.draw_masks import DrawMasks
from modeling.optimizers import clipping
from modeling.optimizers.table import OptimizerSettings
from tests.family.electra.test_electra_encoder import (
    CONFIG,
    facts,
    golden,
    released,
    shapes,
)
from tests.gradients import check_close, gradients
from tests.modeling.distillation.test_distilled_words import make as distilled_words
from tests.modeling.test_packed_rows import packed_and_apart
from tests.samples import SIZES
from tests.training.pretraining.test_dry_run import flops, operations

CLS, SEP, MASK = 2, 3, 4
FLOAT = np.float32
WHOLE = replaced_tokens.ReplacedTokens(0.5)


def masking(counts):
    mask_share, random_share = WHOLE.needs.mask_shares
    return DrawMasks(
        counts=counts,
        max_predictions_per_seq=3,
        mask_share=mask_share,
        random_share=random_share,
        whole_words=False,
        vocab_size=60,
        mask_id=MASK,
        special_ids=(CLS, SEP),
    )


def make_model(folder=""):
    return load(WHOLE.network(CONFIG), folder)


def load(model, folder=""):
    weights = golden(f"{folder}weights.npz")
    for variable in model.weights:
        variable.assign(weights[variable.path])
    return model


@pytest.fixture(scope="module")
def batch():
    """The inputs with the masks that the release drew."""
    drawn, given = golden("outputs.npz"), golden("inputs.npz")
    # It draws with replacement, and the mask of a position that it drew twice counts twice.
    ids, positions = given["input_ids"], drawn["drawn_positions"]
    counts = np.maximum(1, np.rint(given["input_mask"].sum(axis=1) * 0.15))
    used = np.arange(3) < counts[:, None]
    positions = np.where(used, positions, 0)
    hidden = np.where(drawn["drawn_uniform_0"] < 0.85, positions, 0)
    masked = update(tf.constant(ids), tf.constant(hidden), np.full_like(hidden, MASK))
    return given | {
        "input_ids": masked,
        "masked_lm_positions": tf.constant(positions),
        "masked_lm_ids": tf.constant(
            np.where(used, np.take_along_axis(ids, positions, 1), 0)
        ),
        "masked_lm_weights": tf.constant(used, tf.float32),
    }


def complete(model, batch):
    """The batch with draws that give the samples of the release."""
    drawn = golden("outputs.npz")
    draws = np.zeros(drawn["sampled_token_ids"].shape, np.float32)
    logits = np.array(model(batch | {"sampling_draws": draws})["masked_lm_logits"])
    odds = np.exp(np.float64(logits) - logits.max(axis=-1, keepdims=True))
    probs = odds / odds.sum(axis=-1, keepdims=True)
    middle = np.cumsum(probs, axis=-1) - probs / 2
    chosen = drawn["sampled_token_ids"][..., None]
    draws = np.take_along_axis(middle, chosen, -1)[..., 0].astype(np.float32)
    return batch | {"sampling_draws": draws}


def test_masks_equal_the_release(batch):
    expected = golden("outputs.npz")
    np.testing.assert_array_equal(batch["input_ids"], expected["masked_input_ids"])
    for name in ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"):
        np.testing.assert_array_equal(batch[name], expected[name])
    assert batch["masked_lm_positions"][0].numpy().tolist().count(9) == 2


def test_repeated_positions_get_the_mean_of_their_tokens():
    given = golden("scatter_update.npz")
    found = update(given["sequence"], given["positions"], given["updates"])
    np.testing.assert_array_equal(found, given["updated"])


@pytest.mark.parametrize("folder", ["", "sharp/"])
def test_one_pass_equals_the_release(batch, folder):
    expected = golden(f"{folder}outputs.npz")
    model = make_model(folder=folder)
    assert {v.path for v in model.weights} == golden("weights.npz").keys() - {
        "global_step"
    }
    batch = complete(model, batch)
    outputs = model(batch)
    pairs = WHOLE.losses(batch, outputs)
    means = {name: losses.mean(*pair) for name, pair in pairs.items()}
    found = {
        "generator_logits": outputs["masked_lm_logits"],
        "discriminator_logits": outputs["discriminator_logits"],
        "generator_loss": means["masked_lm_loss"],
        "discriminator_loss": means["disc_loss"],
        "total_loss": means["masked_lm_loss"] + 50 * means["disc_loss"],
    }
    # At N(0, 0.5), float32 itself is off by this much.
    tolerance = 1e-4 if folder else 1e-5
    for name, value in found.items():
        np.testing.assert_allclose(
            value, expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
    if folder:
        return
    for name, theirs in (
        ("sampled_ids", "sampled_token_ids"),
        ("discriminator_input_ids", "discriminator_input_ids"),
        ("is_replaced", "is_fake_tokens"),
    ):
        np.testing.assert_array_equal(outputs[name], expected[theirs])
    assert outputs["discriminator_input_ids"][0, 9] == 17  # the mean of 10 and 24
    # Its samples are of this distribution, with other random numbers.
    noise = -np.log(-np.log(expected["drawn_uniform_1"] + 1e-9) + 1e-9)
    noisy = np.array(outputs["masked_lm_logits"]) + noise
    np.testing.assert_array_equal(np.argmax(noisy, -1), expected["sampled_token_ids"])
    _check_metrics(batch, outputs, expected)


def _check_metrics(batch, outputs, expected):
    found = {k: float(a / b) for k, (a, b) in WHOLE.metrics(batch, outputs).items()}
    real = batch["input_mask"] > 0
    labels, said = (
        expected["is_fake_tokens"][real],
        expected["discriminator_preds"][real],
    )
    weights = batch["masked_lm_weights"].numpy()
    ids = batch["masked_lm_ids"].numpy()
    hits = {
        name: ((expected[key] == ids) * weights).sum() / weights.sum()
        for name, key in (
            ("masked_lm_accuracy", "generator_preds"),
            ("sampled_masked_lm_accuracy", "sampled_token_ids"),
        )
    }
    assert found == pytest.approx(
        hits
        | {
            "disc_accuracy": np.mean(labels == said),
            "disc_precision": np.mean(labels[said == 1]),
            "disc_recall": np.mean(said[labels == 1]),
        }
    )
    counts = np.array(WHOLE.counts(batch, outputs))
    assert counts.sum(axis=0).tolist() == [labels.sum(), (1 - labels).sum()]
    metric = keras.metrics.AUC(num_thresholds=200)
    metric.update_state(labels, expected["discriminator_probs"][real])
    assert WHOLE.summary.compute({}, counts) == {
        "disc_auc": pytest.approx(float(metric.result()), abs=1e-5)
    }


def test_gradients_equal_the_release(batch):
    model = make_model()
    _, found = gradients(WHOLE, model, complete(model, batch))
    expected = golden("gradients.npz")
    assert found.keys() == expected.keys()
    check_close(found, expected)


def test_in_bfloat16_the_losses_are_about_the_same(batch):
    model = make_model()
    expected, _ = gradients(WHOLE, model, complete(model, batch))
    rounded = WHOLE.network(CONFIG, dtype="mixed_bfloat16")
    for variable, exact in zip(rounded.weights, model.weights, strict=True):
        assert variable.path == exact.path
        variable.assign(exact)
    outputs = rounded(complete(rounded, batch))
    for name in ("masked_lm_logits", "discriminator_logits"):
        assert outputs[name].dtype == "float32"
    found, by_variable = gradients(WHOLE, rounded, complete(rounded, batch))
    for name, value in found.items():
        assert float(value) == pytest.approx(float(expected[name]), rel=0.05), name
    assert all(np.isfinite(gradient).all() for gradient in by_variable.values())


def test_the_discriminator_teaches_the_generator_only_its_embeddings(batch):
    model = make_model()
    objective = replaced_tokens.ReplacedTokens(0.5)
    objective.loss_weights = {"masked_lm_loss": 0.0, "disc_loss": 50.0}
    _, found = gradients(objective, model, complete(model, batch))
    for path, gradient in found.items():
        own = path.startswith(("generator/", "generator_predictions/"))
        assert np.any(gradient != 0.0) != own, path


@pytest.fixture(scope="module")
def traced():
    """A model, and its outputs and gradients as functions of a batch."""
    model = make_model()
    functions = (model, lambda batch: gradients(WHOLE, model, batch))
    return model, *(tf.function(each, autograph=False) for each in functions)


@pytest.mark.parametrize(
    ("trace", "power"),
    [
        ("trace", 1.0),
        pytest.param("trace_power2", 2.0, marks=pytest.mark.exhaustive),
    ],
)
def test_twenty_updates_equal_the_release(batch, traced, trace, power):
    """With one set of drawings for all, samples included."""
    (model, forward, compiled), expected = traced, golden(f"{trace}.npz")
    load(model)
    settings = OptimizerSettings("electra_adam", lr_decay_power=power)
    optimizer = settings.make(model.trainable_variables)
    variables = {v.path: v for v in model.weights}
    for step in range(20):
        values, found = compiled(complete(forward, batch))
        for name, theirs in (
            ("total_loss", "total_loss"),
            ("masked_lm_loss", "generator_loss"),
            ("disc_loss", "discriminator_loss"),
        ):
            np.testing.assert_allclose(values[name], expected[theirs][step], rtol=1e-4)
        ordered = [found[v.path] for v in optimizer.trainable_variables]
        scale, _ = clipping.clip_scale(ordered, 1.0)
        rate = settings.learning_rate(step, 2e-3, 20, 5)
        np.testing.assert_allclose(rate, expected["learning_rate"][step], rtol=2e-6)
        optimizer.apply(ordered, rate, scale=scale)
        if step == 1 and power == 1.0:
            check_close(variables, expected, "after_step_2/", 1e-5)
    if power == 1.0:  # of the other, only losses and rates were kept
        slots = {slot.path: slot for slot in optimizer.variables}
        check_close(variables | slots, expected, "final/", 1e-4)
    values, _ = gradients(WHOLE, model, complete(model, batch))
    np.testing.assert_allclose(
        values["total_loss"], expected["final_total_loss"], rtol=1e-4
    )


@pytest.mark.parametrize(
    ("theirs", "embedding_size"), [("electra", 12), ("base_no_embedding_size", 16)]
)
def test_both_networks_have_the_names_of_the_release(theirs, embedding_size):
    objective = replaced_tokens.ReplacedTokens(0.5)
    config = dataclasses.replace(CONFIG, embedding_size=embedding_size)
    assert shapes(objective.network(config)) == facts()["variables"][theirs]


def test_documents_of_a_packed_row_do_not_see_each_other():
    """Neither in the generator nor in the discriminator."""
    rng = np.random.default_rng(3)
    packed, apart, places = packed_and_apart(rng)
    network = WHOLE.network(ElectraConfig(**SIZES, embedding_size=8))
    for variable in network.weights:
        variable.assign_add(rng.normal(0, 0.2, variable.shape).astype("float32"))
    slots = [(row, 2 * number) for number, (row, _) in enumerate(places[:3])] + [(1, 0)]
    draws = rng.random(apart["masked_lm_ids"].shape, np.float32)
    in_rows = np.zeros(packed["masked_lm_ids"].shape, np.float32)
    for number, (row, slot) in enumerate(slots):
        in_rows[row, slot : slot + 2] = draws[number, :2]
    found, alone = (
        network.predict(
            {
                k: tf.constant(x, FLOAT if x.dtype == FLOAT else tf.int32)
                for k, x in rows
            }
        )
        for rows in (
            [*packed.items(), ("sampling_draws", in_rows)],
            [*apart.items(), ("sampling_draws", draws)],
        )
    )
    for number, ((row, own), (_, slot)) in enumerate(zip(places, slots, strict=True)):
        length = own.stop - own.start
        for name, here, there in (
            ("masked_lm_logits", slice(slot, slot + 2), slice(0, 2)),
            ("discriminator_logits", own, slice(0, length)),
        ):
            np.testing.assert_allclose(
                found[name][row, here], alone[name][number, there], rtol=0, atol=1e-5
            )


def test_networks_of_one_size_start_apart():
    config = CONFIG.of_sizes(16, 2)
    model = replaced_tokens.ReplacedTokens(1.0).network(config)
    drawn = [v.numpy().tobytes() for v in model.weights if v.path.endswith("kernel")]
    assert len(set(drawn)) == len(drawn) == 2 * (2 * 6 + 1) + 3


@pytest.mark.parametrize(
    ("size", "parameters"),
    [("small", 13_549_057), ("base", 109_483_009), ("large", 335_142_913)],
)
def test_released_sizes(size, parameters):
    """Of the discriminator with its head."""
    config = released(size)
    objective = replaced_tokens.ReplacedTokens(256 / config.hidden_size)
    with layers.shapes_only():
        model = objective.network(config)
    own = [v for v in model.weights if v.path.split("/")[0][:9] != "generator"]
    assert sum(np.prod(v.shape) for v in own) == parameters


def test_samples_follow_the_softmax():
    draws = np.linspace(0, 1, 60_000, endpoint=False, dtype=np.float32)
    logits = np.random.default_rng(1).normal(0, 2, 29)
    logits[[3, 11, 28]] = -200.0  # whose probability is 0
    probs = np.exp(logits) / np.exp(logits).sum()
    rows = np.broadcast_to(logits.astype(np.float32), (1, len(draws), 29))
    sampled = np.array(replaced_tokens.sample(tf.constant(rows), draws[None]))[0]
    shares = np.bincount(sampled, minlength=29) / len(draws)
    np.testing.assert_allclose(shares, probs, atol=3e-5)
    assert not {3, 11, 28} & set(sampled.tolist())
    last = np.float32(1 - 2**-24)
    at_end = replaced_tokens.sample(tf.constant(rows[:, :1]), np.array([[last]]))
    assert probs[int(at_end[0, 0])] > 0


def test_no_position_is_drawn_twice_and_short_rows_are_masked():
    rows = np.full((512, 24), 9, np.int32)
    rows[:, 0], rows[:, -1], rows[:, 5] = CLS, SEP, MASK
    lengths = np.full(512, 24)
    rows[::2, 7:], rows[::2, 6], lengths[::2] = 0, SEP, 7
    rows[4, 1:6], rows[4, 1] = SEP, SEP  # nothing to mask
    mask = (np.arange(24) < lengths[:, None]).astype(np.int32)
    given = {
        "input_ids": tf.constant(rows),
        "input_mask": tf.constant(mask),
        "row_numbers": tf.range(512, dtype=tf.int64),
    }
    masks = masking(counts=np.maximum(1, np.rint(np.arange(25) * 0.15)))
    prepared = WHOLE.prepare(masks(given, 5), 5)
    positions = np.array(prepared["masked_lm_positions"])
    weights = np.array(prepared["masked_lm_weights"])
    draws = np.array(prepared["sampling_draws"])
    assert draws.shape == positions.shape and len(set(draws.ravel())) > 1500
    assert all(
        len(set(row[used > 0])) == used.sum()
        for row, used in zip(positions, weights, strict=True)
    )
    assert weights[0].sum() == 1 and weights[1].sum() == 3
    ids = np.array(prepared["input_ids"])
    hidden = np.take_along_axis(ids[1::2], positions[1::2], 1).ravel() == MASK
    assert 0.8 < hidden.mean() < 0.92
    assert not {0, 23} & set(positions[1::2].ravel().tolist())
    few = {name: x[8:9] for name, x in given.items()}
    again = WHOLE.prepare(masks(few, 5), 5)
    for name, value in again.items():
        np.testing.assert_array_equal(value, np.array(prepared[name])[8:9])
    assert weights[4].sum() == 0


def test_counts_give_the_area_of_any_division():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (4, 50)).astype(np.float32)
    probs = np.clip(rng.normal(0.3 + 0.4 * labels, 0.3), 0, 1).astype(np.float32)
    weights = np.ones_like(labels)
    weights[2, 10:] = 0
    metric = keras.metrics.AUC(num_thresholds=200)
    metric.update_state(labels, probs, sample_weight=weights)
    whole = np.array(roc.counts(probs, labels, weights))
    assert roc.area(whole) == pytest.approx(float(metric.result()), abs=1e-5)
    parts = [
        roc.counts(*(x[i : i + 1] for x in (probs, labels, weights))) for i in range(4)
    ]
    np.testing.assert_array_equal(np.sum(parts, axis=0), whole)


def test_only_an_electra_has_a_generator():
    objective = replaced_tokens.ReplacedTokens()
    with pytest.raises(UserError, match='set "architecture": "electra"'):
        objective.check(BertConfig(vocab_size=9))
    tiny = dataclasses.replace(CONFIG, hidden_size=4, intermediate_size=4)
    with pytest.raises(UserError, match="the generator's num_hidden_layers is 0"):
        replaced_tokens.ReplacedTokens(1.0, generator_layers=0.1).check(tiny)
    odd = dataclasses.replace(CONFIG, hidden_size=400, num_attention_heads=4)
    with pytest.raises(UserError, match="the generator's hidden_size is 129, which 2"):
        replaced_tokens.ReplacedTokens(0.3225).check(odd)
    objective.check(CONFIG)


def test_its_answers_are_not_compared_with_a_teacher():
    task = replaced_tokens.ReplacedTokens()
    assert not task.comparison
    with pytest.raises(UserError, match="only an ELECTRA|no answers"):
        distilled_words(Distillation(), task=task)


def test_operations_of_both_networks_of_an_electra():
    config = ElectraConfig(vocab_size=30522)
    objective = replaced_tokens.ReplacedTokens(0.25)
    found = operations(objective, config, 128, 19)
    found -= flops(config, 128, 0)
    found -= flops(config.generator(0.25, 1.0), 128, 19)
    assert found == 6 * 128 * (256 * 256 + 256)  # the discriminator's head
