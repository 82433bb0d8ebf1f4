"""Checkpoints that ELECTRA's release fine-tuned: its heads are ours by other names."""

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.source import Source
from errors import UserError
from family.electra.span_head import SPAN_HEAD
from modeling.objectives import span_beams, tasks
from tests.family.electra.test_electra_encoder import CONFIG, golden

_MNLI = "task_specific/mnli"


def bundle(folder, head, task, renamed):
    """As the release saves it: the encoder, the head of a task, their slots."""
    weights = {
        k: v for k, v in golden("weights.npz").items() if k.startswith("electra")
    }
    prefix = f"{head}/variables/task_specific/{task}/"
    heads = {
        f"task_specific/{renamed}/{name.removeprefix(prefix)}": value
        for name, value in golden("heads.npz").items()
        if name.startswith(prefix)
    }
    assert heads
    weights |= heads
    slots = {f"{name}/adam_m": 2 * value for name, value in weights.items()}
    path = str(folder / "model.ckpt-9")
    checkpoint.write_bundle(path, weights | slots | {"global_step": np.int64(9)})
    return path


def load(objective, path):
    model = objective.network(CONFIG, seed=3)
    weights = {v.path: v for v in model.weights}
    report = Source.open(path).load(weights, required="", scope="electra/")
    assert all("adam" in name or name == "global_step" for name in report.unused)
    return model


def batch():
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: golden("inputs.npz")[name] for name in names}


@pytest.mark.parametrize("task", ["mnli", "my own task"])
def test_a_classifier_gives_the_numbers_of_the_release(tmp_path, task):
    path = bundle(tmp_path, "mnli", "mnli", task)
    logits = load(tasks.Classification(3), path)(batch())["logits"]
    expected = golden("heads.npz")
    np.testing.assert_allclose(logits, expected["mnli/logits"], rtol=0, atol=1e-5)
    slots = Source.open(path).read(["output_weights/adam_m"])
    kernel = expected[f"mnli/variables/{_MNLI}/dense/kernel"]
    np.testing.assert_array_equal(slots["output_weights/adam_m"], 2 * kernel.T)


@pytest.mark.parametrize("task", ["squad", "squadv1"])
def test_answers_have_the_numbers_of_the_release(tmp_path, task):
    path = bundle(tmp_path, "squad/joint", "squad", task)
    model = load(span_beams.SpanBeams(SPAN_HEAD), path)
    found, expected = model(batch())["no_answer_logit"], golden("heads.npz")
    expected = expected["squad/joint/predict/answerable_logit"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_heads_of_several_tasks_keep_their_names(tmp_path):
    path = bundle(tmp_path, "mnli", "mnli", "mnli")
    tensors = Source.open(path).read()
    tensors |= {
        f"task_specific/{task}/dense/kernel": np.zeros((16, 2), np.float32)
        for task in ("rte", "sst")
    }
    encoder = {k: v for k, v in tensors.items() if not k.startswith("output_")}
    checkpoint.write_bundle(str(tmp_path / "none"), encoder)
    found = Source.open(str(tmp_path / "none")).shapes()
    assert found["task_specific/rte/dense/kernel"] == (16, 2)
    with pytest.raises(UserError, match="not in the checkpoint: output_bias"):
        load(tasks.Classification(3), str(tmp_path / "none"))
