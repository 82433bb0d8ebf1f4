"""--lora_rank adapts encoder and decoder of a T5, and trains nothing else."""

import json

import numpy as np
import pytest
import safetensors.numpy

from training.storage import checkpoint
from training.storage.source import Source
from errors import UserError
from serving.predictor import Predictor
from tests import jobs, low_rank, peft_adapters
from tests.family.t5 import runs
from training.interchange import hugging_face

TARGETS = [*"qkvo", "wi", "wo"]


def layers():
    """Paths of dense layers of attention."""
    attention = {"encoder": ["SelfAttention"], "decoder": ["SelfAttention"]}
    attention["decoder"].append("EncDecAttention")
    return [
        f"{stack}/block_00{number}/layer_{part:03d}/{kind}/{name}"
        for stack, kinds in attention.items()
        for number in (0, 1)
        for part, kind in enumerate(kinds)
        for name in "qv"
    ]


@pytest.fixture
def folder(tmp_path):
    """Files of a task, and the weights of a whole model."""
    runs.write_files(tmp_path)
    task = runs.make_task(tmp_path).objective()
    weights = {v.path: v.numpy() for v in task.network(runs.TINY, seed=7).weights}
    checkpoint.write_bundle(str(tmp_path / "model.ckpt-best"), weights)
    return tmp_path


def run(folder, **changes):
    start = {"init_checkpoint": str(folder / "model.ckpt-best")}
    start |= {"num_train_epochs": [2.0], "save_checkpoints_steps": 2}
    start |= {"learning_rate": [1e-2]}
    runs.run(folder, **start | changes)


@pytest.mark.exhaustive
def test_a_run_adapts_queries_and_values_of_both_stacks(folder):
    more = {"do_predict": True, "do_export": True}
    low_rank.check_run(folder, lambda **flags: run(folder, **flags), layers(), **more)
    known = jobs.predictions(folder)
    inputs = [{"input": text} for text, _ in runs.pairs()]
    found = Predictor(str(folder / "output")).predict(inputs)
    assert [each["predicted"] for each in found] == [
        each["predicted"] for each in known
    ]
    assert len({each["predicted"] for each in known}) > 1


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["query"], "they are called k, o, q, v, wi, wo"),
        (["wi_0"], "'wi_0', which no dense layer is called"),
    ],
)
def test_layers_of_another_name_are_refused(folder, targets, message):
    with pytest.raises(UserError, match=message):
        run(folder, do_train=True, lora_rank=2, lora_targets=targets)


def test_peft_files_have_its_names_and_come_back(folder, tmp_path):
    config = runs.TINY
    weights = Source.open(str(folder / "model.ckpt-best")).read()
    hugging_face.write(str(folder / "base"), weights, config)
    peft_adapters.write_run(
        folder, runs.make_task(folder).objective(), config, targets=TARGETS
    )
    peft_adapters.convert(folder / "output", folder / "ours")
    tensors = safetensors.numpy.load_file(folder / "ours" / "adapter_model.safetensors")
    module = "base_model.model.decoder.block.1.layer.1.EncDecAttention.q"
    assert tensors[f"{module}.lora_A.weight"].shape == (2, config.hidden_size)
    said = json.loads((folder / "ours" / "adapter_config.json").read_text())
    assert said["task_type"] == "SEQ_2_SEQ_LM" and said["modules_to_save"] is None
    assert "encoder.block.0.layer.1.DenseReluDense.wi" in said["target_modules"]
    whole = Source.open(str(folder / "output")).read()
    found = Source.open(str(folder / "ours")).read()
    assert found.keys() == weights.keys()
    for name, value in found.items():
        np.testing.assert_array_equal(value, whole[name], err_msg=name)
    peft_adapters.convert(folder / "ours", tmp_path / "again")
    again = tmp_path / "again" / "adapter_model.safetensors"
    jobs.check_same_bits(safetensors.numpy.load_file(again), tensors)
