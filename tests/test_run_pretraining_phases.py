"""Runs that are made longer, branched, or continued with other settings."""

import dataclasses

import pytest

import tests
from training.storage.source import Source
from errors import UserError
from tests import jobs
from tests.pretraining import RECORDS, TINY, run
from text.records import framing, reading

STABLE = {
    "optimizer": "stable_adamw",
    "lr_schedule": "wsd_sqrt",
    "num_train_steps": 5,
    "keep_checkpoints_at": [4],
}
DECAY = {"num_train_steps": 8, "num_decay_steps": 3, "keep_checkpoints_at": [4, 6]}


def branch(tmp_path, step=5, **changes):
    """Continues a checkpoint of the run in `stable` in another folder."""
    prefix = str(tmp_path / "stable" / "output" / f"model.ckpt-{step}")
    given = {"output_dir": str(tmp_path / "branch"), "init_checkpoint": prefix}
    run(tmp_path, **STABLE | DECAY | {"keep_optimizer": True} | given | changes)


@pytest.fixture
def stable(tmp_path, untraced):
    (tmp_path / "stable").mkdir()
    run(tmp_path / "stable", **STABLE)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_stable_part_serves_decays_planned_or_not(tmp_path, capsys, stable):
    """Made longer, or branched and killed on the way: the bits of one run."""
    (tmp_path / "planned").mkdir()
    run(tmp_path / "planned", **STABLE | DECAY)
    expected = jobs.weights(tmp_path / "planned")
    with jobs.dying(6):
        branch(tmp_path)
    branch(tmp_path)
    assert "continuing from step 6 in" in capsys.readouterr().out
    jobs.check_same_bits(jobs.weights(tmp_path, "branch"), expected)

    run(tmp_path / "stable", **STABLE | DECAY)
    said = "another schedule: num_decay_steps was 0 and is now 3; num_train_steps was 5"
    assert said in capsys.readouterr().out
    jobs.check_same_bits(jobs.weights(tmp_path / "stable"), expected)
    # Its last updates had rates of this end.
    with pytest.raises(UserError, match="num_train_steps was 8 and is now 12"):
        run(tmp_path / "stable", **STABLE | DECAY | {"num_train_steps": 12})

    # From an earlier checkpoint, of another length.
    branch(tmp_path, 4, output_dir=str(tmp_path / "short"), num_train_steps=7)
    assert jobs.weights(tmp_path, "short")["global_step"] == 7


@pytest.mark.slow
def test_a_branch_reads_on_where_the_records_were_left(tmp_path, monkeypatch, stable):
    first_batches = []
    training = reading.Records.training

    def noted(self, size, *, first_batch=0, **more):
        first_batches.append((size, first_batch))
        return training(self, size, first_batch=first_batch, **more)

    monkeypatch.setattr(reading.Records, "training", noted)
    branch(tmp_path)
    larger = {"train_batch_size": 16, "output_dir": str(tmp_path / "larger")}
    with jobs.dying(6):
        branch(tmp_path, **larger)
    branch(tmp_path, **larger)
    # And from that one, whose batches have other numbers than its updates.
    after = {
        "init_checkpoint": str(tmp_path / "larger"),
        "num_train_steps": 11,
        "output_dir": str(tmp_path / "after"),
    }
    branch(tmp_path, **after)
    other = tmp_path / "other"
    other.write_bytes(framing.frame(list(framing.read(RECORDS))[:100]))
    branch(tmp_path, input_file=[str(other)], output_dir=str(tmp_path / "others"))
    # Of a run that has not noted what it read, such as the release's.
    (tmp_path / "stable" / "output" / "run.json").unlink()
    branch(tmp_path, output_dir=str(tmp_path / "unknown"))
    # 40 rows were read: 16 fit in twice, and a half. Then 16 * 6 of which 8 fit in 12.
    assert first_batches == [(8, 5), (16, 3), (16, 4), (8, 12), (8, 0), (8, 5)]
    assert "training/batch_offset" not in Source.open(str(tmp_path / "branch")).shapes()


REFUSED = [
    ({"num_train_steps": 5}, "num_train_steps=5: .* counts the 5 updates of .*-5, too"),
    ({"num_decay_steps": 4}, "would begin before step 5, .*; pass at most 3"),
    (
        {"optimizer": "adagrad", "lr_schedule": "wsd", "adam_beta_2": 0.999},
        "-5 does not fit: no .*/adagrad; and [0-9]+ more",
    ),
    (
        {"config": dataclasses.replace(TINY, max_position_embeddings=128)},
        r"-5: does not fit .*position_embeddings is \[64,8\] .* \[128,8\]",
    ),
    (
        {"init_checkpoint": f"{tests.GOLDEN}/checkpoint/bert_model.ckpt"}
        | {"change_network": True},
        "bert_model.ckpt has no global_step, so it is not",
    ),
]


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_continued_is_refused(tmp_path, stable):
    for changes, message in REFUSED:
        with pytest.raises(UserError, match=message):
            branch(tmp_path, **changes)
    assert not list((tmp_path / "branch").glob("model.ckpt*"))


def test_a_decay_must_leave_room_for_the_warm_up(tmp_path):
    with pytest.raises(
        UserError, match="--num_decay_steps=5: with --num_warmup_steps=2"
    ):
        run(tmp_path, lr_schedule="wsd", num_decay_steps=5)
    with pytest.raises(
        UserError, match="--lr_schedule=bert, that of .* does not have it"
    ):
        run(tmp_path, num_decay_steps=2)
