"""Several networks in one checkpoint: what is read in place, and what is taken out."""

import types

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from training.interchange import networks
from training.interchange.adapter import CheckpointNetwork
from training.interchange.bert_adapter import BertAdapter


def _own(scope):
    def take(tensors, config):
        return {k: v for k, v in tensors.items() if k.startswith(scope)}, config

    return take


# A made-up architecture with a teacher that it learns from.
_TOY = types.SimpleNamespace(
    networks={
        "student": CheckpointNetwork("toy/head", "answers", _own("toy/"), ("toy/",)),
        "teacher": CheckpointNetwork(
            "teacher/head", "teaches", _own("teacher/"), ("teacher/",), "--teacher_size"
        ),
    }
)
BOTH = {"toy/table": 1, "toy/head": 2, "teacher/head": 3, "global_step": 4}


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setattr(networks, "ADAPTERS", {"bert": BertAdapter(), "toy": _TOY})


def test_a_network_is_found_and_taken_out():
    assert list(networks.networks_in(BOTH)) == ["student", "teacher"]
    assert not networks.networks_in(["toy/table", "toy/head"])
    found, config = networks.take("x", BOTH, "config", "teacher", alone=True)
    assert (found, config) == ({"teacher/head": 3}, "config")
    assert networks.take("x", BOTH, "config", None, alone=False) == (BOTH, "config")
    with pytest.raises(UserError, match="pass --network=student or teacher"):
        networks.take("x", BOTH, "config", None, alone=True)
    with pytest.raises(UserError, match="not contain both a student and a teacher"):
        networks.take("x", {"toy/head": 2}, "config", "student", alone=True)


def test_only_the_network_of_the_config_is_read_in_place():
    networks.check_wanted("x", BOTH, {"toy/table", "toy/head"})
    networks.check_wanted("x", BOTH, {"toy/head", "teacher/head"})
    networks.check_wanted("x", {"teacher/head"}, {"teacher/head"})
    with pytest.raises(UserError, match="only the teacher teaches; .*=teacher"):
        networks.check_wanted("x", BOTH, {"toy/table", "teacher/head"})


def test_a_network_of_another_size_is_one_short_line_with_its_flags(tmp_path):
    have = {f"teacher/{n}": np.zeros(2, np.float32) for n in range(9)}
    prefix = checkpoint.save(
        Folder.open(str(tmp_path)), 1, have | {"toy/table": have["teacher/0"]}, 5
    )
    wanted = {name: np.zeros(3, np.float32) for name in have}
    with pytest.raises(UserError) as error:
        Source.open(prefix).match(wanted, scope="toy/")
    assert str(error.value) == (
        f"{prefix}: its teacher does not fit the model; check --teacher_size: "
        "teacher/0 is [2] in the checkpoint and [3] in the model; teacher/1 is [2] in the "
        "checkpoint and [3] in the model; teacher/2 is [2] in the checkpoint and [3] in "
        "the model; and 6 more"
    )
    wanted["toy/table"] = np.zeros(3, np.float32)
    with pytest.raises(UserError, match="does not fit the model; check --bert_config"):
        Source.open(prefix).match(wanted, scope="toy/")


def test_a_head_that_another_network_has_is_said(tmp_path):
    have = {"toy/head": np.zeros(2, np.float32), "toy/table": np.zeros(2, np.float32)}
    prefix = checkpoint.save(Folder.open(str(tmp_path)), 1, have, 5)
    wanted = {"toy/table": have["toy/table"], "teacher/head": have["toy/head"]}
    with pytest.raises(UserError, match="holds a student, and only a teacher teaches"):
        Source.open(prefix).match(wanted, required="", scope="toy/")
    without = checkpoint.save(
        Folder.open(str(tmp_path)), 2, {"toy/table": have["toy/table"]}, 5
    )
    with pytest.raises(UserError, match="an encoder without this head cannot answer"):
        Source.open(without).match(wanted, required="", scope="toy/")
