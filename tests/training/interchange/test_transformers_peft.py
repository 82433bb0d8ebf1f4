"""Adapters that go to peft and come from it give the same logits there and here."""

import os
import sys

import numpy as np
import pytest

import tests
from tests import jobs, peft_adapters

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", peft_adapters.CONFIGS)
def test_adapters_give_the_same_logits(kind, tmp_path):
    if os.environ.get("ORACLES") != "required":
        pytest.importorskip("peft")
    peft_adapters.write_base(tmp_path, kind)
    peft_adapters.adapt(tmp_path)
    rng = np.random.default_rng(2)
    ids = rng.integers(5, 15, (3, 8))
    np.savez(tmp_path / "inputs.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    program = tests.ROOT / "tests" / "programs" / "ask_peft.py"
    done = jobs.finished([sys.executable, str(program), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    inputs = {"input_ids": ids.astype(np.int32)}
    for name, path in (("ours", "output"), ("theirs", "theirs")):
        with np.load(tmp_path / f"{name}.npz") as file:
            expected = file["logits"]
        found = peft_adapters.logits(tmp_path, str(tmp_path / path), kind, inputs)
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(found, expected, atol=2e-5)
