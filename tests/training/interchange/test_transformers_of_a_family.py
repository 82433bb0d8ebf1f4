"""ALBERTs and ELECTRAs for every task go to transformers and give the same logits there."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import tests
from modeling.objectives import tasks
from tests import samples
from tests.training.interchange.test_transformers import LENGTH, rows, write_rows
from training.interchange import hugging_face

pytestmark = pytest.mark.slow

OBJECTIVES = {
    "classification": tasks.Classification(3),
    "choice": tasks.Choice(),
    "tagging": tasks.Tagging(5),
    "span": tasks.Span(),
}
# Name -> a config, and the heads that it is tried with.
WRITTEN = samples.collect("WRITTEN", "transformers_cases")
CASES = [(name, head) for name, (_, heads) in WRITTEN.items() for head in heads]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """All models, asked once: (folder, our outputs)."""
    folder, ours = tmp_path_factory.mktemp("asked"), {}
    for name, head in CASES:
        config, _ = WRITTEN[name]
        model = OBJECTIVES[head].network(config, seed=0)
        rng = np.random.default_rng(5)
        for weights in model.weights:  # biases are 0 at first, and say nothing
            weights.assign_add(0.1 * rng.normal(size=weights.shape).astype(np.float32))
        tensors = {weights.path: weights.numpy() for weights in model.weights}
        if head in ("span", "tagging"):
            tensors = {k: v for k, v in tensors.items() if "/pooler/" not in k}
        purpose = {"task": {"head": head}} if head != "span" else {}
        hugging_face.write(str(folder / f"{name} {head}"), tensors, config, **purpose)
        write_rows(head, folder / f"{name} {head}")
        outputs = model(rows(head))
        ours[name, head] = {key: np.array(value) for key, value in outputs.items()}
    questions = {"read": [" ".join(case) for case in CASES], "make": [], "split": []}
    (folder / "questions.json").write_text(json.dumps(questions))
    (folder / "texts.json").write_text("[]")
    program = tests.ROOT / "tests" / "programs" / "ask_transformers.py"
    subprocess.run(
        [sys.executable, str(program), str(folder)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=True,
        timeout=400,
    )
    return folder, ours


@pytest.mark.parametrize(("name", "head"), CASES)
def test_they_read_what_is_written(asked, name, head):
    folder, ours = asked
    model = folder / f"{name} {head}"
    loading = json.loads((model / "loading.json").read_text())
    assert not any(loading.values()), loading  # nothing new, nothing unread
    mask = rows(head)["input_mask"]
    with np.load(model / "outputs.npz") as theirs:
        found = dict(theirs)
    assert len(found) == len(ours[name, head])
    for key, value in found.items():
        assert np.ptp(value) > 0.1  # else anything were the same
        # Nothing reads padding, which differs.
        real = mask > 0 if value.shape[:2] == (6, LENGTH) else slice(None)
        np.testing.assert_allclose(
            ours[name, head][key][real], value[real], rtol=0, atol=1e-5
        )
