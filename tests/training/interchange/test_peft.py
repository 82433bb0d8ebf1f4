"""Adapters in the files of Hugging Face's peft, without it."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import convert_checkpoint
from training.storage import checkpoint
from errors import UserError
from tests import jobs, peft_adapters
from training.interchange import peft

WEIGHTS = "adapter_model.safetensors"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=peft_adapters.CONFIGS)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    peft_adapters.write_base(folder, request.param)
    peft_adapters.adapt(folder)
    return folder


def test_files_are_named_as_pefts_and_come_back_as_they_were(folder):
    kind = folder.name.rstrip("0123456789")
    stored = safetensors.numpy.load_file(folder / "ours" / WEIGHTS)
    module = f"base_model.model.{kind}.encoder.layer.1.attention.self"
    assert stored[f"{module}.query.lora_A.weight"].shape == (2, 16)
    assert stored[f"{module}.value.lora_B.weight"].shape == (16, 2)
    head = {
        "bert": ["classifier"],
        "roberta": ["classifier.dense", "classifier.out_proj"],
    }
    others = {name for name in stored if "lora" not in name}
    assert others == {
        f"base_model.model.{name}.{end}"
        for name in head[kind]
        for end in ("weight", "bias")
    }
    said = json.loads((folder / "ours" / "adapter_config.json").read_text())
    assert said["r"] == 2 and said["lora_alpha"] == 4
    assert said["target_modules"] == ["query", "value"]
    assert said["modules_to_save"] == ["classifier"]
    assert said["base_model_name_or_path"] == str(folder / "base")
    # Read with its base, it is the model that was trained.
    found = checkpoint.read(checkpoint.resolve(str(folder / "ours")))
    whole = jobs.weights(folder)
    assert found and not any("lora" in name for name in found)
    for name, value in found.items():
        np.testing.assert_array_equal(value, whole[name], err_msg=name)
    assert set(whole) - set(found) == {
        n
        for n in whole
        if n == "global_step" or n.startswith("training/") or "/adam_" in n
    }


def test_adapters_of_a_bfloat16_model_are_read(folder, tmp_path):
    known = safetensors.numpy.load_file(folder / "ours" / WEIGHTS)
    path = tmp_path / WEIGHTS
    shutil.copy(folder / "ours" / "adapter_config.json", tmp_path)
    # As torch saves them; from numpy, safetensors does not.
    parts, header, end = [], {}, 0
    for name, value in known.items():
        parts.append(value.astype(ml_dtypes.bfloat16).tobytes())
        place = [end, end := end + len(parts[-1])]
        header[name] = {"dtype": "BF16", "shape": value.shape, "data_offsets": place}
    said = json.dumps(header).encode()
    path.write_bytes(b"".join([len(said).to_bytes(8, "little"), said, *parts]))
    _, _, found = peft.read(str(path))
    for name, value in peft.read(str(folder / "ours" / WEIGHTS))[2].items():
        expected = value.astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(found[name], expected)
    whole = {name: value.astype(np.int8) for name, value in known.items()}
    safetensors.numpy.save_file(whole, path)
    with pytest.raises(UserError, match="has type I8, but only F64, F32, F16, BF16"):
        peft.read(str(path))


def test_what_peft_computes_otherwise_is_refused(folder, tmp_path):
    path = folder / "ours" / "adapter_config.json"
    said = json.loads(path.read_text())
    try:
        for changes, message in (
            ({"use_dora": True}, "use_dora is True, and only False is read; merge"),
            ({"peft_type": "IA3"}, "does not describe a LoRA adapter"),
            ({"base_model_name_or_path": None}, "base_model_name_or_path is None"),
            (
                {"base_model_name_or_path": "/none"},
                "/none: no such .* change base_model",
            ),
            ({"lora_alpha": -1}, "lora_alpha is -1; it must be above 0"),
        ):
            path.write_text(json.dumps(said | changes))
            with pytest.raises(UserError, match=message):
                checkpoint.read(checkpoint.resolve(str(folder / "ours")))
    finally:
        path.write_text(json.dumps(said))
    # A tensor is missing.
    shutil.copytree(folder / "ours", tmp_path / "less")
    stored = safetensors.numpy.load_file(folder / "ours" / WEIGHTS)
    lost = next(name for name in stored if "lora_A" in name)
    del stored[lost]
    safetensors.numpy.save_file(stored, tmp_path / "less" / WEIGHTS)
    with pytest.raises(UserError, match="query has no lora_kernel_a, only the other"):
        checkpoint.read(checkpoint.resolve(str(tmp_path / "less")))
    given = {"output_dir": str(tmp_path / "new"), "layout": "peft"}
    with pytest.raises(UserError, match="contains no adapters"):
        jobs.run(convert_checkpoint, given | {"input": [str(folder / "base")]})
