"""What --dry_run says, and that it leaves nothing."""

import pathlib
import re
import types

import pytest

import run_pretraining
from training.pretraining import dry_run
from errors import UserError
from modeling.architectures.bert import BertConfig
from modeling.architectures.network import Network
from tests import jobs, pretraining, tiny

BASE = BertConfig(vocab_size=30522)
LARGE = BertConfig(
    vocab_size=30522,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
)


def operations(objective, config, seq_length, predictions):
    """Six for each weight that multiplies: a product, and two for the gradients."""
    return 6 * objective.network(config).multiplications(seq_length, predictions)


def flops(config, seq_length, predictions):
    """The same for a masked LM, without making one, which may be large."""
    network = types.SimpleNamespace(encoders=[types.SimpleNamespace(config=config)])
    return 6 * Network.multiplications(network, seq_length, predictions)


def test_operations_of_a_row():
    # Six for each weight that multiplies a token, twice over what attention adds.
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    attention = 12 * 2 * 128 * 768
    head = 20 * 768 * (768 + 30522)
    found = flops(BASE, 128, 20)
    assert found == 6 * (128 * (weights + attention) + head)


@pytest.mark.parametrize(
    ("name", "config"), [("BERT-Base", BASE), ("BERT-Large", LARGE)]
)
def test_runs_of_the_paper(name, config):
    rows = 256 * 900_000, 256 * 100_000
    total = rows[0] * flops(config, 128, 20)
    total += rows[1] * flops(config, 512, 76)
    assert dry_run.PAPER[name] == pytest.approx(total, rel=5e-3)


def test_it_says_what_a_run_takes_and_writes_nothing(tmp_path, capsys, untraced):
    config = tiny.config(
        vocab_size=3000,
        hidden_size=64,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    flags = pretraining.flags(tmp_path, config, num_train_steps=419)
    before = sorted(tmp_path.iterdir())
    jobs.run(run_pretraining, flags | {"dry_run": True})
    assert sorted(tmp_path.iterdir()) == before
    said = capsys.readouterr().out
    assert "the run: 419 updates, 4.0 epochs" in said
    operations = 8 * flops(config, 64, 10)
    assert f"an update: {operations / 1e12:.3g} TFLOP" in said
    jobs.run(run_pretraining, flags | {"num_train_steps": 1})
    size = sum(p.stat().st_size for p in (tmp_path / "output").glob("model.ckpt-1.*"))
    promised = float(re.search(r"a checkpoint takes ([\d.]+) MB", said)[1]) * 1e6
    assert promised == pytest.approx(size, rel=0.02)
    counted = dry_run.Measurements(1, size, 1.0, 2.0, 1).lines(86_400, 1.0)
    assert "2d 0h without evaluations" in counted[2]


def test_a_damaged_record_is_named(tmp_path, untraced):
    content = bytearray(pathlib.Path(pretraining.RECORDS).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(content)
    damaged = {"input_file": [str(tmp_path / "damaged")], "train_batch_size": 256}
    with pytest.raises(UserError, match="damaged: record"):
        pretraining.run(tmp_path, dry_run=True, **damaged)


def test_it_is_about_training(tmp_path):
    evaluates = {"do_train": False, "do_eval": True}
    with pytest.raises(UserError, match="--dry_run has no effect without --do_train"):
        pretraining.run(tmp_path, dry_run=True, **evaluates)
