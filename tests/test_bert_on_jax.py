"""The door for Python on JAX: the numbers and files of TensorFlow, and what is refused."""

import json
import sys

import numpy as np
import pytest

from tests import forked, jobs

PROGRAM = "tests/programs/door.py"


def _run(folder, backend, *arguments):
    line = [*jobs.command(PROGRAM, {}), str(folder), *map(str, arguments)]
    if backend == "tensorflow":
        done = forked.finished(line)
    else:
        env = jobs.ENVIRONMENT | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
        # It compiles hundreds of functions, each for one or a few calls.
        env["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
        done = jobs.finished(line, env=env)
    assert done.returncode == 0, done.stderr
    with np.load(folder / f"{backend}_{arguments[0]}.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("door")


@pytest.fixture(scope="module")
def on_tensorflow(folder):
    return _run(folder, "tensorflow", "write")


@pytest.fixture(scope="module")
def on_jax(folder, on_tensorflow):
    return _run(folder, "jax", "write", folder / "tensorflow.keras")


@pytest.mark.exhaustive
def test_vectors_and_words_are_those_of_tensorflow(on_tensorflow, on_jax):
    for name in ("outputs", "mean", "cls", "probabilities"):
        np.testing.assert_allclose(on_jax[name], on_tensorflow[name], atol=1e-5)
    assert on_jax["words"].tolist() == on_tensorflow["words"].tolist()


@pytest.mark.exhaustive
def test_fit_learns_what_it_learns_on_tensorflow(on_tensorflow, on_jax):
    """Scores less exactly than losses: Adam divides the smallest gradients, whose last bits
    differ, by themselves."""
    losses = on_jax["losses"]
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(losses, on_tensorflow["losses"], rtol=1e-5)
    np.testing.assert_allclose(on_jax["jax"], on_tensorflow["tensorflow"], atol=1e-4)


@pytest.mark.exhaustive
def test_files_of_keras_are_read_by_the_other_backend(folder, on_tensorflow, on_jax):
    again = _run(folder, "tensorflow", "read", folder / "jax.keras")
    np.testing.assert_allclose(again["jax"], on_jax["jax"], atol=1e-5)
    expected = on_tensorflow["tensorflow"]
    np.testing.assert_allclose(on_jax["tensorflow"], expected, atol=1e-5)


@pytest.mark.exhaustive
def test_both_backends_save_the_same_bytes(folder, on_jax):
    saved = [
        {path.name: path.read_bytes() for path in (folder / backend).iterdir()}
        for backend in ("tensorflow", "jax")
    ]
    assert saved[0] == saved[1] and "bert_model.ckpt.index" in saved[0]


@pytest.mark.exhaustive
def test_what_jax_cannot_do_is_said_in_one_line(on_jax):
    refused = str(on_jax["task"])
    assert refused.startswith(
        "load_task needs TensorFlow, but Keras runs on jax; start"
    )
    assert refused.endswith("KERAS_BACKEND=tensorflow") and "\n" not in refused
    # JAX itself would take another row of the table.
    assert str(on_jax["wrong"]).startswith("input_ids has -1; it must be from 0 to")


@pytest.mark.exhaustive
def test_another_backend_of_keras_json_is_refused(tmp_path):
    (tmp_path / "keras.json").write_text(json.dumps({"backend": "numpy"}))
    env = jobs.ENVIRONMENT | {"KERAS_HOME": str(tmp_path)}
    del env["KERAS_BACKEND"]
    program = (
        "import bert\n"
        "try: bert.load('nowhere')\n"
        "except bert.UserError as error: print(error)\n"
    )
    done = jobs.finished([sys.executable, "-c", program], env=env)
    assert done.stdout.startswith("Keras runs on numpy, but bert only on"), done.stderr
    assert done.stdout.count("\n") == 1
