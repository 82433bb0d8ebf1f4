"""Adapters that go to peft and come from it give the same logits there and here."""

import itertools
import json
import os
import sys

import numpy as np
import pytest

import tests
from tests import jobs, peft_adapters, tiers
from tests.conversion import convert
from tests.training.interchange import transformers_adapters
from tests.training.interchange.transformers_configs import ROWS
from tests.training.interchange.transformers_models import difference, theirs

pytestmark = [
    pytest.mark.slow,
    # Between versions of peft and transformers.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

CLOSE = 2e-6
_EVERY = itertools.product(
    transformers_adapters.ARCHITECTURES, transformers_adapters.HEADS
)
CASES = tiers.cases(
    _EVERY,
    [
        (name, head)
        for name in transformers_adapters.ARCHITECTURES
        for head in ("classification", *ROWS[name].few)
    ],
)


@pytest.fixture(autouse=True)
def needs_peft():
    if os.environ.get("ORACLES") != "required":
        pytest.importorskip("peft")


@pytest.mark.parametrize("kind", peft_adapters.CONFIGS)
def test_what_we_train_has_the_same_logits_there(kind, tmp_path):
    peft_adapters.write_base(tmp_path, kind)
    peft_adapters.adapt(tmp_path, kind)
    rng = np.random.default_rng(2)
    ids = rng.integers(5, 15, (3, 8))
    np.savez(tmp_path / "inputs.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    program = tests.ROOT / "tests" / "programs" / "ask_peft.py"
    row = peft_adapters.ROWS[kind]
    more = {"target_modules": [*row.targets], "modules_to_save": row.saved}
    asked = [sys.executable, str(program), str(tmp_path), json.dumps(more)]
    done = jobs.finished(asked)
    assert done.returncode == 0, done.stderr
    inputs = {"input_ids": ids.astype(np.int32)}
    for name, path in (("ours", "output"), ("theirs", "theirs")):
        with np.load(tmp_path / f"{name}.npz") as file:
            expected = file["logits"]
        found = peft_adapters.logits(tmp_path, str(tmp_path / path), kind, inputs)
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize(("architecture", "head"), CASES)
def test_an_adapter_of_theirs_is_read_and_comes_back(architecture, head, tmp_path):
    case = transformers_adapters.case_of(architecture, head)
    model = transformers_adapters.make(case, head, tmp_path)
    # Not of their class for questions, which drops the token types.
    expected = theirs(model.get_base_model(), case)
    assert (
        difference(transformers_adapters.ours(case, tmp_path), expected, case) < CLOSE
    )
    convert(tmp_path / "adapter", tmp_path / "back", layout="peft")
    again = transformers_adapters.load(case, tmp_path, "back")
    assert difference(theirs(again, case), expected, case) < CLOSE
    # Trained further, nothing else is trained.
    first = transformers_adapters.load(case, tmp_path, "adapter")
    assert transformers_adapters.trained(again) == transformers_adapters.trained(first)
