"""ELMo's encoder and training, compared with bilm's code, and its own promises."""

import contextlib
import dataclasses
import json
import math

import numpy as np
import pytest
from keras import ops

import tests
from training.backend import tf
from training.storage import adapters, loading
from errors import UserError
from family.elmo.bidirectional_lm import BidirectionalLM, BidirectionalLMModel
from family.elmo.encoder import ElmoConfig
from family.elmo.tokenizer import SPECIAL
from modeling import bilstm, custom_gradients, layers
from modeling.architectures.table import config_from_dict, make_encoder
from modeling.objectives import tasks
from modeling.objectives.low_rank import LowRank
from modeling.optimizers import clipping
from modeling.optimizers.table import OptimizerSettings, layerwise_shares
from tests import low_rank, relatives, tiny
from tests.modeling.test_jax_backend import check
from tests.saved_tokenizers import check_server
from tests.training.pretraining.test_dry_run import operations
from text.tokenizers.table import TokenizerOptions

GOLDEN = tests.GOLDEN / "elmo"
# Of bilm_training.npz: 3 rows of 6 tokens an update.
SIZES = ElmoConfig(vocab_size=23, hidden_size=16, lstm_size=10, hidden_dropout_prob=0.0)
# With limits that act, and outputs that depend on all that a direction has read.
LIMITED = dataclasses.replace(
    SIZES, cell_clip=0.3, projection_clip=0.2, initializer_range=0.8
)
LENGTHS = np.array([7, 3, 1, 0])


def batch():
    ids = np.random.default_rng(0).integers(1, 23, (4, 7))
    mask = (np.arange(7) < LENGTHS[:, None]).astype(np.int32)
    return {"input_ids": ids, "input_mask": mask}


# --- bilm's training -----------------------------------------------------------------


def their_name(path):
    """Of our variable, in bilm's graph."""
    if path == "elmo/table":
        return "embedding"
    scope, _, name = path.rpartition("/")
    if scope.startswith("cls"):
        return {"output_bias": "softmax/b", "output_weights": "softmax/W"}[name]
    direction, kind = name.split("_")
    kind = {"projection": "projection/kernel"}.get(kind, kind)
    number = ("forward", "backward").index(direction)
    cell = scope.replace("elmo/layer", "cell")
    return f"RNN_{number}/rnn/multi_rnn_cell/{cell}/lstm_cell/{kind}"


def read_both(model, forward, backward, states):
    """The losses of rows that each direction reads from its own text, and the states.

    In bilm the backward text is the same one, read from its end: never the same tokens as
    the forward direction reads in that update.
    """
    weights = np.ones((3, 6), "float32")
    found, after = [], []
    for number, rows in enumerate((forward, backward)):
        order = slice(None, None, -1 if number else None)
        inputs = {"input_ids": rows[:, :6][:, order]}
        outputs, ends = model.encoder.read(inputs, states=states)
        hidden = ops.split(outputs["sequence_output"], 2, axis=-1)[number][:, order]
        name = ("forward", "backward")[number]
        sums = model.compare(name, hidden, rows[:, 1:], weights)
        found.append(sums[f"{name}_loss"] / 18.0)
        after.append(ends)
    states = [
        tuple(ops.stack([f[0], b[1]]) for f, b in zip(*pair, strict=True))
        for pair in zip(*after, strict=True)
    ]
    return found, states


@pytest.mark.parametrize("softmax", ["separate", "shared"])
def test_four_updates_with_carried_states_equal_bilms(softmax):
    golden = np.load(GOLDEN / "bilm_training.npz")
    config = dataclasses.replace(SIZES, share_embedding_softmax=softmax == "shared")
    model = BidirectionalLMModel(config)
    for variable in model.weights:
        variable.assign(golden[f"{softmax}_start:{their_name(variable.path)}"])
    variables = model.trainable_variables
    assert len(variables) == 15 - (softmax == "shared")
    optimizer = OptimizerSettings("adagrad").make(variables)
    stream, states = golden["stream"], model.encoder.initial_states(3)
    for update in range(4):
        rows = [
            text[:, 6 * update : 6 * update + 7] for text in (stream, stream[:, ::-1])
        ]
        with custom_gradients.use_gradients(), tf.GradientTape() as tape:
            found, states = read_both(model, *rows, states)
            loss = sum(found) / 2.0
            scaled = loss * 6  # bilm: times the steps of a row
        gradients = tape.gradient(scaled, [v.value for v in variables])
        scale, norm = clipping.clip_scale(gradients, 10.0)
        np.testing.assert_allclose(
            [*found, loss, norm],
            golden[f"{softmax}_trace_forward_backward_total_norm"][update],
            rtol=1e-5,
        )
        optimizer.apply(gradients, 0.2, update, scale)
    for variable in model.weights:
        expected = golden[f"{softmax}_after4:{their_name(variable.path)}"]
        np.testing.assert_allclose(variable, expected, atol=2e-6)
    for layer, state in enumerate(states):
        for value, name in zip(state, "hc", strict=True):
            for direction in range(2):
                key = f"{softmax}_final_state_{direction}_{layer}_{name}"
                np.testing.assert_allclose(value[direction], golden[key], atol=1e-5)


def test_adagrad_keeps_its_rate_and_decays_nothing():
    variables = BidirectionalLMModel(SIZES).trainable_variables
    shares = {"elmo/table": 0.5}
    settings = OptimizerSettings("adagrad", weight_decay=0.5)
    optimizer = settings.make(variables, shares)
    assert float(settings.learning_rate(90, 0.2, 100, 0)) == pytest.approx(0.2)
    before = {v.path: v.numpy() for v in variables}
    optimizer.apply([2.0 * tf.ones(v.shape) for v in variables], 0.2, scale=0.5)
    for v, slot in zip(variables, optimizer.variables, strict=True):
        assert slot.path == f"{v.path}/adagrad"
        np.testing.assert_array_equal(slot, np.full(v.shape, 2.0))  # 1 + 1 ** 2
        step = 0.2 * shares.get(v.path, 1.0) / math.sqrt(2.0)
        np.testing.assert_allclose(v, before[v.path] - step, atol=1e-6)


# --- the encoder ---------------------------------------------------------------------


def test_written_gradients_are_those_of_the_backend_with_limits_and_padding():
    encoder = make_encoder(LIMITED, seed=1)
    weights = np.random.default_rng(1).normal(size=(4, 7, 16)).astype("float32")
    weights *= batch()["input_mask"][..., None]
    found = []
    for context in (contextlib.nullcontext, custom_gradients.use_gradients):
        with context(), tf.GradientTape() as tape:
            outputs = encoder(
                batch(), dropouts=layers.Dropouts([1, 2]), return_all=True
            )
            loss = sum(
                ops.sum(ops.square(x) * weights) for x in outputs["layer_outputs"]
            )
        found.append([loss, *tape.gradient(loss, [v.value for v in encoder.weights])])
    for automatic, written in zip(*found, strict=True):
        assert np.any(automatic)
        np.testing.assert_allclose(written, automatic, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_padding_and_what_a_direction_has_not_read_change_nothing(dtype):
    encoder = make_encoder(LIMITED, seed=1, dtype=dtype)
    given = batch()
    whole = encoder(given, return_all=True)
    names = ("sequence_output", "embedding_output")
    assert whole["sequence_output"].dtype == encoder.compute_dtype
    for row, length in enumerate(LENGTHS[:3]):
        alone = encoder({"input_ids": given["input_ids"][row, None, :length]})
        found = ops.cast(whole["sequence_output"][row, :length], "float32")
        expected = ops.cast(alone["sequence_output"][0], "float32")
        np.testing.assert_allclose(found, expected, atol=1e-6)
    changed = given["input_ids"].copy()
    changed[0, 3] = changed[0, 3] % 22 + 1
    other = encoder(given | {"input_ids": changed}, return_all=True)
    for name in names:
        differs = np.any(ops.cast(whole[name] != other[name], "int32"), axis=0)
        assert differs.shape == (7, 16)
    halves = ops.cast(whole["sequence_output"] != other["sequence_output"], "int32")
    forward, backward = (np.any(x[0], axis=-1) for x in ops.split(halves, 2, -1))
    assert forward.tolist() == [i >= 3 for i in range(7)]
    assert backward.tolist() == [i <= 3 for i in range(7)]


def test_a_row_that_continues_another_is_one_with_it():
    encoder = make_encoder(LIMITED, seed=1)
    ids = batch()["input_ids"]
    whole, end = encoder.read({"input_ids": ids})
    _, states = encoder.read({"input_ids": ids[:, :4]})
    later, after = encoder.read({"input_ids": ids[:, 4:]}, states=states)
    np.testing.assert_allclose(
        later["sequence_output"][..., :8],
        whole["sequence_output"][:, 4:, :8],
        atol=1e-6,
    )
    for found, expected in zip(after, end, strict=True):
        np.testing.assert_allclose(found[1][0], expected[1][0], atol=1e-6)


def test_its_parts_have_names_and_stages_and_a_row_is_read_where_it_ends():
    encoder = make_encoder(LIMITED, seed=1)
    names = {v.path: tuple(v.shape) for v in encoder.weights}
    assert names.pop("elmo/table") == (23, 8)
    kinds = {"kernel": (16, 40), "bias": (40,), "projection": (10, 8)}
    assert names == {
        f"elmo/layer_{layer}/{direction}_{kind}": shape
        for layer in range(2)
        for direction in ("forward", "backward")
        for kind, shape in kinds.items()
    }
    assert encoder.required_variables == tuple(v.path for v in encoder.weights)
    shares = layerwise_shares(encoder.stages, 0.5)
    assert {p[:12]: s for p, s in shares.items()} == {
        "elmo/table": 0.0625,
        "elmo/layer_0": 0.125,
        "elmo/layer_1": 0.25,
    }
    outputs = encoder(batch())
    pooled = encoder.pool(outputs, batch()["input_mask"])
    hidden = outputs["sequence_output"]
    np.testing.assert_array_equal(pooled[1, :8], hidden[1, 2, :8])
    np.testing.assert_array_equal(pooled[1, 8:], hidden[1, 0, 8:])
    np.testing.assert_array_equal(
        pooled, bilstm.last_states(hidden, batch()["input_mask"])
    )


# --- the objective -------------------------------------------------------------------


def test_losses_are_means_over_neighbours_and_perplexities_follow():
    model, objective = BidirectionalLMModel(LIMITED, seed=2), BidirectionalLM()
    given = batch() | {"is_real_example": np.array([1, 1, 0, 1])}
    outputs = model(given)
    hidden = np.array(outputs["sequence_output"])
    table = model.encoder.word_embeddings.numpy()
    expected = {"forward_loss": 0.0, "backward_loss": 0.0}
    for row, length in enumerate((7, 3)):
        for t in range(length - 1):
            for name, at, target, half in (
                ("forward_loss", t, t + 1, hidden[row, :, :8]),
                ("backward_loss", t + 1, t, hidden[row, :, 8:]),
            ):
                logits = half[at] @ table.T
                chances = np.exp(logits) / np.exp(logits).sum()
                expected[name] -= np.log(chances[given["input_ids"][row, target]])
    pairs = objective.losses(given, outputs)
    assert {k: float(v) for k, v in objective.weights(given).items()} == {
        "forward_loss": 8.0,
        "backward_loss": 8.0,
    }
    for name, (total, weight) in pairs.items():
        assert float(total) == pytest.approx(expected[name], rel=1e-5)
        assert float(weight) == 8.0
    derived = objective.summary.compute({"forward_loss": 1.0, "backward_loss": 2.0}, ())
    assert derived == {
        "perplexity": pytest.approx(math.exp(1.5)),
        "forward_perplexity": pytest.approx(math.exp(1.0)),
        "backward_perplexity": pytest.approx(math.exp(2.0)),
    }


def test_dropout_acts_in_training_on_every_input_and_on_the_last_output():
    config = dataclasses.replace(LIMITED, hidden_dropout_prob=0.5)
    sites = []

    class Noting(layers.Dropouts):
        def __call__(self, x, rate):
            sites.append((tuple(x.shape), rate))
            return super().__call__(x, rate)

    model = BidirectionalLMModel(config, seed=2)
    model(batch(), dropouts=Noting([1, 2]))
    assert sites == [((7, 2, 4, 8), 0.5)] * 2 + [((4, 7, 8), 0.5)] * 2


def test_only_separate_directions_learn_it():
    BidirectionalLM().check(SIZES)
    for direction in ("both", "left_to_right"):
        with pytest.raises(UserError, match='use "architecture": "elmo"'):
            BidirectionalLM().check(tiny.config(attention_direction=direction))
    assert BidirectionalLM().exporter is None


def test_next_tokens_are_refused_to_separate_directions():
    gpt = pytest.importorskip("family.gpt.next_token")  # it may be left out
    with pytest.raises(UserError, match="use --objective=bidirectional_lm"):
        gpt.NextToken().check(SIZES)


def test_in_bfloat16_losses_and_gradients_are_about_the_same():
    found = []
    for dtype in ("float32", "mixed_bfloat16"):
        # Limits would act on other numbers than in float32.
        model = BidirectionalLMModel(SIZES, dtype=dtype)
        with custom_gradients.use_gradients(), tf.GradientTape() as tape:
            outputs = model(batch(), dropouts=layers.Dropouts([0, 0]))
            loss = outputs["forward_loss"] + outputs["backward_loss"]
        found.append((loss, tape.gradient(loss, model.encoder.word_embeddings.value)))
    (loss, table), (rounded_loss, rounded_table) = found
    assert float(rounded_loss) == pytest.approx(float(loss), rel=1e-2)
    scale = float(np.max(np.abs(table)))
    np.testing.assert_allclose(rounded_table, table, atol=0.05 * scale)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 15}, "hidden_size is 15, which two directions cannot share"),
        ({"cell_clip": 0}, "cell_clip is 0; it must be above 0"),
        ({"projection_clip": "3"}, "projection_clip is '3'; it must be of type float"),
        ({"use_skip_connections": 1}, "use_skip_connections is 1; it must be of type"),
        ({"num_attention_heads": 2}, "unknown key 'num_attention_heads'; remove it"),
    ],
)
def test_a_config_refuses_what_is_none_of_its_keys(values, message):
    known = {"architecture": "elmo", "vocab_size": 9}
    assert config_from_dict(known | {"cell_clip": None}).cell_clip is None
    assert config_from_dict(json.loads(SIZES.to_json_string())) == SIZES
    with pytest.raises(ValueError, match=message):
        config_from_dict(known | values)


def test_operations_of_both_directions_of_an_elmo():
    config = ElmoConfig(vocab_size=30522)
    found = operations(BidirectionalLM(), config, 128, 128)
    lstm = 4096 * (4 * (512 + 512) + 512)
    # The gates read inputs and outputs; each direction predicts every token.
    assert found == 6 * 128 * 2 * (2 * lstm + 512 * 30522)


# --- Its tokenizer in a SavedModel does the same as in Python ------------------------


@pytest.mark.exhaustive
def test_a_server_gives_the_same_ids(tmp_path):
    words = "".join(f"{word}\n" for word in [*SPECIAL, "é", "cats,", "a"])
    (tmp_path / "words.txt").write_text(words)
    tokenizer = TokenizerOptions().load_tokenizer(str(tmp_path))
    check_server(tokenizer, tmp_path)


# --- --lora_rank reaches the projections and the gates of an ELMo's LSTMs ------------


CONFIG = relatives.CONFIGS["elmo"]
DIRECTIONS = ("forward", "backward")


@pytest.mark.exhaustive
def test_a_run_adapts_projections(tmp_path, untraced):
    start = relatives.classifier_from_a_start(tmp_path, CONFIG, **low_rank.SHORT)
    found = [f"elmo/layer_{n}/{d}_projection" for n in (0, 1) for d in DIRECTIONS]
    low_rank.check_run(tmp_path, lambda **flags: start(tmp_path, **flags), found)


def test_every_kernel_changes_by_the_product_of_its_adapters():
    targets = [f"{d}_{kind}" for d in DIRECTIONS for kind in ("kernel", "projection")]
    task = tasks.Classification(2)
    objective = LowRank(task, rank=3, alpha=6.0, targets=targets)
    objective.check(CONFIG)
    adapted, plain = objective.network(CONFIG), task.network(CONFIG)
    rng = np.random.default_rng(0)
    own = [v for v in adapted.weights if loading.is_adapter(v.path)]
    assert len(own) == 2 * 2 * len(targets)
    for variable in own:
        variable.assign_add(rng.normal(scale=0.1, size=variable.shape))
    merged = adapters.without({v.path: v for v in adapted.weights}, 6.0)
    for variable in plain.weights:
        variable.assign(merged[variable.path])
    ids = {"input_ids": rng.integers(0, 9, (2, 5)).astype(np.int32)}
    expected = plain(ids)["logits"]
    np.testing.assert_allclose(adapted(ids)["logits"], expected, atol=1e-5)


# --- Its network needs no TensorFlow: the same numbers on Keras's JAX backend --------


@pytest.mark.exhaustive
def test_jax_equals_the_release_without_tensorflow():
    check("tests/family/elmo/elmo_on_jax.py")
