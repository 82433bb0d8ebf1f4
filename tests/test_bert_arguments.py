"""Every argument of the door for Python, with values that nobody means.

Functions, methods and their arguments are found by introspection: a new argument is walked
without a word here, if it has a default.
"""

import dataclasses
import inspect
import random
import time
import types

import numpy as np
import pytest

import bert
import tests
from training.backend import tf
from modeling.optimizers.table import OptimizerSettings
from serving import predictor
from text.tokenizers.table import TokenizerOptions

MODEL = str(tests.GOLDEN / "checkpoint")
HOSTILE = [
    *(0, -1, 1, 10**16, 10**400, 1.5, 1e300, float("nan"), float("inf"), None, True),
    *("", "no", "a\0b", "a\nb", "a/b", "\ud800", "x" * 300, b"x", "/proc/self/mem"),
    *("gs://no/where", "gs://a b/c", "hf://a", "http://x", "x://y", "~nobody/x"),
    *(
        [],
        {},
        set(),
        (),
        object(),
        object,
        np.array(5),
        np.array("x"),
        np.zeros((2, 0)),
    ),
    *(np.float32("nan"), range(3), [[]], [None], {"a": None}, lambda: 0),
]
# What is passed for an argument without a default while another one is hostile.
PASSED = {
    "texts": ["Open the file.", ("Close it?", "It is closed.")],
    "text": "Open the [MASK].",
    "labels": [0, 1],
    "requests": ["Open the file."],
    "queries": ["Open it."],
    "learning_rate": 1e-3,
    "num_train_steps": 9,
    "value": True,
}
# The names that `**` arguments may have.
MORE = {"text": TokenizerOptions, "settings": OptimizerSettings}


class _Served(predictor.Served):
    """What a loaded model is asked by, without one."""

    def __init__(self):
        described = {"form": "number", "inputs": {"text": "text"}}
        super().__init__(described, _answer_with_zeros, "nowhere")


def _answer_with_zeros(text):
    return {"predicted": tf.zeros(text.shape)}


@pytest.fixture(scope="module")
def objects():
    """One of each class of the door, by its name."""
    made = (bert.load(MODEL), bert.load_masked_lm(MODEL), bert.Task(_Served()))
    return {type(one).__name__: one for one in made}


def _calls():
    """(name, argument) of the door, such as ("TextEncoder.embed", "pooling")."""
    for name in bert.__all__:
        part = getattr(bert, name)
        if isinstance(part, types.FunctionType):
            yield from ((name, argument) for argument in _arguments(part))
        elif not issubclass(part, Exception):
            for method, function in vars(part).items():
                if isinstance(function, property) and function.fset:
                    yield f"{name}.{method}", "value"
                is_public = not method.startswith("_") or method == "__call__"
                if isinstance(function, types.FunctionType) and is_public:
                    yield from ((f"{name}.{method}", a) for a in _arguments(function))


def _arguments(function):
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            yield from (
                field.name for field in dataclasses.fields(MORE[parameter.name])
            )
        elif parameter.name != "self":
            yield parameter.name


def _called(objects, name, argument, value, folder):
    """Calls a part of the door, with one argument hostile."""
    owner, _, method = name.rpartition(".")
    if isinstance(getattr(getattr(bert, owner, None), method, None), property):
        return setattr(objects[owner], method, value)
    function = getattr(objects[owner] if owner else bert, method)
    encoder = objects["TextEncoder"]
    passed = PASSED | {
        "path": MODEL,
        "folder": str(folder / "new"),
        "encoder": encoder,
        "inputs": encoder.tokenize(["Open the file."]),
    }
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind != parameter.VAR_KEYWORD
    ]
    return function(**{n: passed[n] for n in needed} | {argument: value})


@pytest.mark.parametrize(("name", "argument"), list(_calls()))
def test_a_call_works_or_says_in_one_line_why_not(
    objects, tmp_path, monkeypatch, request, name, argument
):
    """Some values in the default tier, and all of them with --everything."""
    monkeypatch.chdir(tmp_path)
    values = [wrapped for value in HOSTILE for wrapped in (value, [value])]
    if not request.config.getoption("everything"):
        values = random.Random(f"{name} {argument}").sample(values, 4)
    wrong = []
    for value in values:
        begun = time.monotonic()
        try:
            _called(objects, name, argument, value, tmp_path)
        except bert.UserError as error:
            if not str(error).isprintable():
                wrong.append((value, error))
        except Exception as error:
            wrong.append((value, error))
        if time.monotonic() - begun > 5:
            wrong.append((value, "takes long"))
    assert not wrong
