"""An encoder of another architecture is one file and one row."""

import dataclasses
import json

import pytest

from training.storage import checkpoint
from errors import UserError
from modeling.architectures import table
from modeling.architectures.bert import BertEncoder
from modeling.architectures.bert_config import BertConfig
from modeling.objectives import sentence_pairs, tasks
from tests import tiny

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
    row = table.Architecture(ToyConfig, BertEncoder, ("toy", "toy-v2"))
    monkeypatch.setitem(table.ARCHITECTURES, "toy", row)
    path = tmp_path / "config.json"
    config = ToyConfig(**dataclasses.asdict(TINY), ties_weights=False)
    path.write_text(config.to_json_string())
    assert checkpoint.read_config(str(path)) == config
    theirs = config.to_hugging_face() | {"model_type": "toy-v2"}
    assert type(table.config_from_dict(theirs)) is ToyConfig
    for model in (
        sentence_pairs.MaskedLMNextSentence().network(config),
        tasks.Classification(2).network(config),
    ):
        encoder = {v.path for v in model.weights if v.path.startswith("toy/")}
        assert encoder == {v.path for v in model.encoder.weights}
        assert not any(v.path.startswith("bert/") for v in model.weights)
        assert encoder - set(model.encoder.required) == {
            "toy/pooler/dense/kernel",
            "toy/pooler/dense/bias",
        }


def test_only_an_architecture_of_the_table_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"vocab_size": 9, "architecture": "bert"}')
    assert checkpoint.read_config(str(path)) == BertConfig(vocab_size=9)
    for value in ("lstm", 5, None, ["bert"]):
        path.write_text(json.dumps({"vocab_size": 9, "architecture": value}))
        with pytest.raises(UserError, match="architecture is .*must be one of 'bert'"):
            checkpoint.read_config(str(path))


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
