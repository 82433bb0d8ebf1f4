"""T5's optimizer and its schedules: mesh_tensorflow's updates to the digit."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import tests
from training.run import compiler
from errors import UserError
from modeling import fusion
from modeling.optimizers import adafactor, schedules
from modeling.optimizers.table import OptimizerSettings
from training.run.options import RunOptions

SHAPES = {
    "factored": (130, 150),
    "factored_wide": (128, 200),
    "small_matrix": (32, 24),
    "narrow": (300, 16),
    "vector": (40,),
    "zero_start": (6,),
}


def golden(name):
    with np.load(tests.GOLDEN / "t5" / name) as file:
        return dict(file)


def drawn():
    """The golden starts and the gradients of six updates, by name."""
    draw = np.random.RandomState(81).randn
    starts = {
        name: np.zeros(shape) if name == "zero_start" else draw(*shape) * 0.5
        for name, shape in SHAPES.items()
    }
    gradients = [
        {name: draw(*s) * (3.0 if t == 3 else 0.1) for name, s in SHAPES.items()}
        for t in range(6)
    ]
    return starts, gradients


@pytest.mark.slow
@pytest.mark.parametrize("compile_", [None, compiler.compile_function])
def test_six_updates_equal_the_release_s(compile_):
    expected = golden("adafactor.npz")
    starts, gradients = drawn()
    variables = {
        name: keras.Variable(start.astype("float32"), name=name)
        for name, start in starts.items()
    }
    optimizer = OptimizerSettings("adafactor").make(variables.values())
    for step, of_step in enumerate(gradients):
        rate = expected["learning_rates"][step]
        halved = [ops.cast(g / 2, "float32") for g in of_step.values()]
        with fusion.fuse_with(compile_):
            optimizer.apply(halved, rate, tf.constant(step, tf.int64), scale=2.0)
        if step in (0, 5):
            for name, variable in variables.items():
                after = expected[f"after{step + 1}:{name}"]
                np.testing.assert_allclose(
                    variable.numpy()[: len(after)], after, rtol=0, atol=1e-6
                )
    sizes = {slot.path: tuple(slot.shape) for slot in optimizer.variables}
    assert sizes == {
        "factored_slot_vr": (130,),
        "factored_slot_vc": (150,),
        "factored_wide_slot_vr": (128,),
        "factored_wide_slot_vc": (200,),
        **{f"{name}_slot_v": SHAPES[name] for name in list(SHAPES)[2:]},
    }


def test_slots_have_the_names_of_the_released_checkpoints():
    with keras.name_scope("encoder"), keras.name_scope("SelfAttention"):
        query = keras.Variable(np.zeros((128, 256), np.float32), name="q")
    slots = OptimizerSettings("adafactor").make([query]).variables
    assert [slot.path for slot in slots] == [
        "encoder/SelfAttention/q_slot_vr",
        "encoder/SelfAttention/q_slot_vc",
    ]


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((127, 5000), ()),
        ((128, 128), (0, 1)),
        ((128, 129), (1, 0)),
        ((2, 256, 300), (2, 1)),
        ((300,), ()),
    ],
)
def test_the_two_largest_axes_are_factored_if_both_are_large(shape, axes):
    assert adafactor.factored_axes(shape) == axes


def test_more_axes_are_factored_as_each_matrix_of_them():
    """An update that no clipping changes is that of each part alone."""
    draw = np.random.default_rng(0).normal
    start, gradient = (draw(size=(2, 128, 130)).astype("float32") for _ in range(2))
    gradient[1] = gradient[0]
    start[1] = start[0]

    def updated(start, gradient):
        variable = keras.Variable(start, name="x")
        optimizer = OptimizerSettings("adafactor").make([variable])
        optimizer.apply([ops.convert_to_tensor(gradient)], 0.1, 0)
        return variable.numpy()

    both, one = updated(start, gradient), updated(start[0], gradient[0])
    for part in both:
        np.testing.assert_allclose(part, one, rtol=0, atol=1e-6)


def test_shares_of_the_rate():
    one, other = (keras.Variable(np.ones(3, "float32"), name=n) for n in "ab")
    optimizer = OptimizerSettings("adafactor").make([one, other], {other.path: 0.5})
    optimizer.apply([ops.ones(3)] * 2, 0.1, 0)
    np.testing.assert_allclose(one, [0.9] * 3, rtol=1e-6)
    np.testing.assert_allclose(other, [0.95] * 3, rtol=1e-6)


def test_schedules_equal_the_release_s():
    expected = golden("schedules.npz")
    for step, rate in zip(expected["step"], expected["truncated_rsqrt"], strict=True):
        found = schedules.inverse_root(step, 0.01, 1 << 19, 10_000)
        assert float(found) == pytest.approx(rate, rel=1e-6)
        constant = OptimizerSettings("adafactor", "constant")
        constant = constant.learning_rate(step, 1e-3, 1 << 18, 0)
        assert float(constant) == pytest.approx(1e-3)
    no_warmup = schedules.inverse_root(4, 0.5, 10, 0)
    assert float(no_warmup) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("optimizer", "given"),
    [
        ("adafactor", {"weight_decay": 0.1}),
        ("adafactor", {"bias_correction": True}),
        ("adafactor", {"adam_beta_2": 0.98}),
        ("adagrad", {"weight_decay": 0.1}),
        ("adagrad", {"lr_decay_power": 2.0}),
    ],
)
def test_what_an_optimizer_or_its_schedule_does_not_have_is_refused(optimizer, given):
    (name,) = given
    files = {"bert_config_file": "x", "output_dir": "x"}
    with pytest.raises(UserError, match=f"--{name}=.*{optimizer},? does not have it"):
        RunOptions(optimizer=optimizer, **files, **given)
