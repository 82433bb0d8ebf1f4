"""An encoder of another architecture is one file and its rows."""

import dataclasses
import json

import numpy as np
import pytest

from training.storage import checkpoint_contents
from training.storage.source import Source, read_config
from errors import UserError
from modeling.architectures import table
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs, tasks
from tests import jobs, pretraining, tiny
from tests.conversion import convert
from tests.programs import windows
from tests.records import VOCAB_FILE as _VOCAB_FILE
from training.interchange.table import ADAPTERS

VOCAB_FILE = str(_VOCAB_FILE)

TINY = tiny.config()


@dataclasses.dataclass(frozen=True)
class ToyConfig(BertConfig):
    """Of another architecture, with keys of all kinds."""

    architecture = "toy"
    choices = BertConfig.choices | {"direction": ("both", "left_to_right")}
    direction: str = "both"
    memory_size: int | None = None
    ties_weights: bool = True


def test_an_architecture_is_a_row(monkeypatch, tmp_path):
    name = "modeling.architectures.bert:BertEncoder"
    row = table.Architecture(f"{__name__}:ToyConfig", name)
    monkeypatch.setitem(table.ARCHITECTURES, "toy", row)
    path = tmp_path / "config.json"
    config = ToyConfig(**dataclasses.asdict(TINY), ties_weights=False)
    path.write_text(config.to_json_string())
    assert read_config(str(path)) == config
    for model in (
        sentence_pairs.MaskedLMNextSentence().network(config),
        tasks.Classification(2).network(config),
    ):
        encoder = {v.path for v in model.weights if v.path.startswith("toy/")}
        assert encoder == {v.path for v in model.encoder.weights}
        assert not any(v.path.startswith("bert/") for v in model.weights)
        assert encoder - set(model.encoder.required_variables) == {
            "toy/pooler/dense/kernel",
            "toy/pooler/dense/bias",
        }


@pytest.fixture
def windows_rows(monkeypatch):
    """What the product knows of tests/programs/windows.py: two rows."""
    monkeypatch.setitem(table.ARCHITECTURES, "windows", windows.ARCHITECTURE)
    monkeypatch.setitem(ADAPTERS, "windows", windows.WindowsAdapter())


@pytest.mark.exhaustive
def test_an_encoder_of_one_file_is_trained_exported_and_converted(
    windows_rows, tmp_path, capsys, untraced
):
    given = {
        "config": windows.WindowsConfig(3000),
        "objective": "masked_lm",
        "save_checkpoints_steps": 2,
        "vocab_file": VOCAB_FILE,
    }
    weights = pretraining.run_twice(tmp_path, capsys, **given)
    assert weights["windows/layer_1/dense/kernel"].shape == (48, 16)
    pretraining.run(tmp_path / "whole", **given, do_train=False, do_export=True)
    output = str(tmp_path / "whole" / "output")
    jobs.check_masks(output, VOCAB_FILE, capsys)
    convert(output, tmp_path / "theirs", layout="hugging_face")
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert (said["model_type"], said["architectures"]) == (
        "windows",
        ["WindowsForMaskedLM"],
    )
    convert(tmp_path / "theirs", tmp_path / "ours")
    assert checkpoint_contents.compare(
        Source.open(output), Source.open(str(tmp_path / "ours"))
    )
    convert(output, tmp_path / "student", keep_layers=[1])
    config = read_config(str(tmp_path / "student"))
    assert config == windows.WindowsConfig(3000, num_hidden_layers=1)


@pytest.mark.parametrize("task", [tasks.Classification(2), tasks.Tagging(3)])
def test_an_encoder_of_one_file_reads_rows_of_any_length(windows_rows, task):
    network = task.network(windows.WindowsConfig(40))
    row = {"input_ids": np.array([[1, 2, 3]]), "input_mask": np.array([[1, 1, 1]])}
    longer = {name: np.pad(value, ((0, 0), (0, 4))) for name, value in row.items()}
    expected, logits = (network(batch)["logits"] for batch in (row, longer))
    if logits.shape != expected.shape:  # of tokens
        logits = logits[:, :3]
    np.testing.assert_allclose(logits, expected, atol=1e-6)


def test_only_an_architecture_of_the_table_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"vocab_size": 9, "architecture": "bert"}')
    assert read_config(str(path)) == BertConfig(vocab_size=9)
    for value in ("lstm", 5, None, ["bert"]):
        path.write_text(json.dumps({"vocab_size": 9, "architecture": value}))
        with pytest.raises(UserError, match="architecture is .*must be one of 'bert'"):
            read_config(str(path))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ties_weights": 1}, "ties_weights is 1.*bool"),
        ({"ties_weights": None}, "ties_weights is None.*bool"),
        ({"memory_size": True}, "memory_size is True.*int"),
        ({"memory_size": 0}, "memory_size is 0.*above 0"),
        ({"direction": "up"}, "direction is 'up'.*one of both, left_to_right"),
    ],
)
def test_keys_of_all_kinds_are_checked(values, message):
    assert ToyConfig(9, memory_size=4, ties_weights=False).memory_size == 4
    with pytest.raises(ValueError, match=message):
        ToyConfig.from_dict({"vocab_size": 9} | values)
