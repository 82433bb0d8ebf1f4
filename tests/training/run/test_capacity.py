"""What cannot fit into memory is refused before it is allocated; nothing else is."""

import dataclasses

import pytest

import convert_checkpoint
import tests
from training.backend import tf
from training.pretraining import pretrain
from training.run import capacity
from errors import UserError
from modeling.architectures.albert import AlbertConfig
from modeling.architectures.bert import BertConfig
from tests import jobs, tiny

LARGE = {
    "tables": tiny.config(vocab_size=2**31 - 1, hidden_size=2048),
    "positions": tiny.config(max_position_embeddings=2**31 - 1, hidden_size=2048),
    "layers": tiny.config(hidden_size=2**20),
}


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    monkeypatch.setattr(capacity, "_memory", lambda: 100 * 10**9)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda: ["CPU"])


@pytest.mark.parametrize("name", ["tables", "positions", "layers"])
def test_a_network_that_cannot_fit_is_refused(name):
    message = r"^c.json: a network of [\d,]+ weights needs at least .* has 100 GB"
    with pytest.raises(UserError, match=message):
        capacity.check_network(LARGE[name], "c.json")


def test_what_may_fit_is_not_refused():
    for config in (BertConfig(30522, 1024, 24, 16, 4096), tiny.config()):
        capacity.check_network(config, "c.json", numbers_per_weight=2)
    # All layers of an ALBERT share their weights.
    capacity.check_network(AlbertConfig(30000, num_hidden_layers=999), "c.json")
    half = tiny.config(vocab_size=8_000_000, hidden_size=2048)  # 65 GB
    capacity.check_network(half, "c.json")
    with pytest.raises(UserError, match="needs at least 131 GB"):
        capacity.check_network(half, "c.json", numbers_per_weight=2)


def test_accelerators_have_memory_of_their_own(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda: ["CPU", "GPU"])
    capacity.check_network(LARGE["tables"], "c.json")


@dataclasses.dataclass
class Flags:
    train_batch_size: int = 2**20
    gradient_accumulation_steps: int = 1
    max_seq_length: int = 128
    mem_len: int = 0
    do_train: bool = True
    uses_tpu: bool = False


def test_rows_that_cannot_fit_are_refused():
    config = BertConfig(30522)
    with pytest.raises(
        UserError, match="^--train_batch_size=1048576 with --max_seq_le"
    ):
        pretrain._check_capacity(Flags(), config)
    pretrain._check_capacity(Flags(gradient_accumulation_steps=2**10), config)
    long = Flags(train_batch_size=64, mem_len=2**20)
    with pytest.raises(
        UserError, match="^--train_batch_size=64 with --mem_len=1048576"
    ):
        pretrain._check_capacity(long, config)


def test_a_longer_table_that_cannot_fit_is_refused(tmp_path):
    given = {
        "input": [str(tests.GOLDEN / "checkpoint" / "bert_model.ckpt")],
        "output_dir": str(tmp_path / "out"),
    }
    for name in ("vocab_size", "max_position_embeddings"):
        with pytest.raises(UserError, match=f"^--{name}=2000000000: a network of "):
            jobs.run(convert_checkpoint, given | {name: 2 * 10**9})
        assert not (tmp_path / "out").exists()
