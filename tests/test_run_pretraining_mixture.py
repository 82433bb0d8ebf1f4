"""run_pretraining.py on a mixture of sources: losses, log, kills, other mixtures."""

import re

import pytest

import run_pretraining
from errors import UserError
from tests import forked, jobs
from tests.pretraining import (
    RECORDS,
    ROOT,
    STILL,
    flags,
    metrics,
    results,
    run,
    run_on,
    run_twice,
)
from text.records import framing

SIZES = {"wiki": 42, "books": 18, "code": 6}
WEIGHTED = ["wiki*:7", "books*:3", "code*:1"]


@pytest.fixture
def folder(tmp_path, monkeypatch, untraced):
    """Three sources of rows as the golden ones."""
    records, begin = list(framing.read(RECORDS)), 0
    for name, size in SIZES.items():
        content = framing.frame(records[begin : begin + size])
        (tmp_path / f"{name}.tfrecord").write_bytes(content)
        begin += size
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.exhaustive
def test_losses_by_source_are_those_of_runs_over_one(folder, capsys):
    """Each is read whole, by a network that hardly changes and forgets nothing."""
    still = {"config": STILL, "learning_rate": 1e-20, "train_batch_size": 22}
    still |= {"eval_batch_size": 66, "num_train_steps": 3}
    (folder / "mixed").mkdir()
    run(
        folder / "mixed",
        input_file=WEIGHTED,
        eval_input_file=["wiki.tfrecord", "code.tfrecord"],
        eval_every_steps=3,
        gradient_accumulation_steps=2,
        do_eval=True,
        **still,
    )
    said = capsys.readouterr().out
    for line in (
        "the weights of the sources are divided by their sum, 11\n",
        "source wiki: 63.64% of all rows; its 42 records are read 1 times\n",
        r"  loss by source: wiki \d\.\d+, books \d\.\d+, code \d\.\d+",
        "  epochs by source: wiki 1, books 1, code 1\n",
    ):
        assert re.search(line, said), line
    train, held_out = metrics(folder / "mixed")
    evaluated = results(folder / "mixed")
    for name in ("wiki", "code"):
        size = SIZES[name]
        (folder / name).mkdir()
        run(
            folder / name,
            input_file=[f"{name}.tfrecord"],
            **still | {"train_batch_size": size, "num_train_steps": 1},
        )
        (alone,) = metrics(folder / name)
        for loss in ("loss", "masked_lm_loss", "next_sentence_loss"):
            assert train[f"{loss}/{name}"] == pytest.approx(alone[loss], rel=1e-5)
            assert held_out[f"{loss}/{name}"] == pytest.approx(alone[loss], rel=1e-5)
            value = float(evaluated[f"{loss}/{name}"])
            assert value == pytest.approx(alone[loss], rel=1e-5)
    assert "loss/books" not in held_out
    assert (folder / "mixed" / "output" / "curves.png").exists()


def test_a_killed_mixture_ends_with_the_same_bits(folder, capsys):
    run_twice(
        folder,
        capsys,
        input_file=WEIGHTED,
        train_batch_size=11,
        log_every_steps=1,
        save_checkpoints_steps=2,
    )
    whole, killed = metrics(folder / "whole"), metrics(folder / "killed")
    for row, other in zip(whole, killed, strict=True):
        del row["examples_per_second"], other["examples_per_second"]
        assert row == other
    with pytest.raises(UserError, match="mixture was 'wiki:7,.* and is now 'wiki:6,"):
        run(
            folder / "killed",
            input_file=["wiki*:6", *WEIGHTED[1:]],
            train_batch_size=11,
            save_checkpoints_steps=2,
        )


def test_a_source_that_ends_begins_anew_and_says_so(folder, capsys):
    run(
        folder,
        input_file=["wiki*", "code*"],
        source_temperature=float("inf"),
        train_batch_size=10,
        num_train_steps=4,
        log_every_steps=1,
        save_checkpoints_steps=9,
    )
    said = capsys.readouterr().out
    assert "source code: 50% of all rows; its 6 records are read 3.33 times" in said
    anew = re.findall(r"source \w+ begins anew: all was read \d times?", said)
    assert anew == [
        f"source code begins anew: all was read {times}"
        for times in ("1 time", "2 times", "3 times")
    ]
    epochs = [row["epochs/code"] for row in metrics(folder)]
    assert epochs == [step * 5 / 6 for step in range(1, 5)]


@pytest.mark.exhaustive
def test_another_mixture_continues_where_each_source_was(folder, capsys):
    """A phase: other shares, without one of the sources, and in batches of another size."""
    changes = {"optimizer": "stable_adamw", "log_every_steps": 1}
    (folder / "first").mkdir()
    run(
        folder / "first",
        input_file=WEIGHTED,
        train_batch_size=11,
        num_train_steps=4,
        **changes,
    )
    second = changes | {
        "input_file": ["code*:0.5", "wiki*:0.5"],
        "init_checkpoint": str(folder / "first" / "output"),
        "keep_optimizer": True,
        "train_batch_size": 2,
        "num_train_steps": 8,
        "save_checkpoints_steps": 2,
    }
    (folder / "whole").mkdir()
    capsys.readouterr()
    run(folder / "whole", dry_run=True, **second)
    said = capsys.readouterr().out
    assert re.search("the run: 4 updates, [^,]* without evaluations", said)
    assert "source code: 50% of all rows; its 6 records are read 1.33 times" in said
    run(folder / "whole", **second)
    run_on(folder, capsys, 6, **second)
    last = metrics(folder / "killed")[-1]
    # 4 of 6 rows of code and 28 of 42 of wiki had been read.
    assert last["epochs/code"] == (4 + 4) / 6
    assert last["epochs/wiki"] == (28 + 4) / 42


@pytest.mark.exhaustive
def test_a_source_that_phases_left_out_or_did_not_mix_is_read_on(folder):
    phases = (WEIGHTED, ["code*:1", "wiki*:10"], ["books*"], WEIGHTED)
    changes = {"train_batch_size": 11, "num_warmup_steps": 1, "log_every_steps": 1}
    for step, sources in enumerate(phases, 1):
        place = folder / str(step)
        place.mkdir()
        run(place, input_file=sources, num_train_steps=step, **changes)
        changes |= {"init_checkpoint": str(place / "output"), "keep_optimizer": True}
    last = metrics(place)[-1]
    read = {name: last[f"epochs/{name}"] * SIZES[name] for name in SIZES}
    assert read == pytest.approx({"wiki": 7 + 10 + 7, "books": 3 + 3, "code": 3})


@pytest.mark.exhaustive
def test_replicas_report_the_losses_of_one_device(folder, monkeypatch):
    monkeypatch.chdir(ROOT)  # where the fork of another process begins
    weighted = [str(folder / pattern) for pattern in WEIGHTED]
    changes = {"config": STILL, "input_file": weighted, "train_batch_size": 22}
    changes |= {"log_every_steps": 1, "num_train_steps": 3}
    for name in ("one", "two"):
        (folder / name).mkdir()
    run(folder / "one", **changes)
    given = flags(folder / "two", distribution="mirrored", **changes)
    program = f"{ROOT}/tests/programs/on_two_cpus.py"
    python, *line = jobs.command("run_pretraining.py", given)
    done = forked.finished([python, program, *line], untraced=True)
    assert done.returncode == 0, done.stderr
    assert "on 2 devices" in done.stdout
    for row, other in zip(
        metrics(folder / "one"), metrics(folder / "two"), strict=True
    ):
        for name in (n for n in row if "loss" in n or "epochs" in n):
            assert other[name] == pytest.approx(row[name], rel=1e-5), name


@pytest.mark.exhaustive
def test_two_hosts_read_the_rows_and_report_the_losses_of_one(folder, monkeypatch):
    """Each reads its own half of them."""
    monkeypatch.chdir(ROOT)
    changes = {"config": STILL, "train_batch_size": 22, "num_train_steps": 5}
    changes |= {"input_file": [str(folder / pattern) for pattern in WEIGHTED]}
    changes |= {"eval_input_file": [str(folder / "wiki*"), str(folder / "code*")]}
    changes |= {"log_every_steps": 1, "eval_every_steps": 5, "eval_batch_size": 8}
    for name in ("one", "two"):
        (folder / name).mkdir()

    def line(name, host, **more):
        python, *script = jobs.command(
            "run_pretraining.py", flags(folder / name, **changes, **more)
        )
        program = f"{ROOT}/tests/programs/host_that_notes_rows.py"
        return [python, program, str(folder / host), *script]

    hosts = [line("two", host, distribution="multi_worker") for host in "ab"]
    for done in (
        forked.finished(line("one", "alone"), untraced=True),
        *forked.hosts_finished({"worker": hosts}),
    ):
        assert done.returncode == 0, done.stderr
    alone, *halves = (_noted(folder / host) for host in ("alone", "a", "b"))
    assert sorted(alone) == list(range(110))
    for host, half in enumerate(halves):
        assert half == {n: row for n, row in alone.items() if n % 2 == host}
    both = zip(metrics(folder / "one"), metrics(folder / "two"), strict=True)
    for row, other in both:
        names = [name for name in row if "loss" in name or "epochs" in name]
        assert len(names) in (15, 9)  # of a training, of an evaluation
        for name in names:
            assert other[name] == pytest.approx(row[name], rel=1e-5), name


def _noted(path):
    """Number of a row -> its source and the digest of its record."""
    rows = re.findall(r"\[(\d+) (\d+) (\d+)\]", path.read_text())
    return {int(n): (source, record) for n, source, record in rows if int(n) < 110}


def test_what_cannot_be_mixed_is_refused_before_a_device_is_taken(folder, monkeypatch):
    def refuse(*args, **settings):
        raise AssertionError("a device was taken")

    monkeypatch.setattr("training.run.distribution.make", refuse)
    for changes, message in (
        ({"input_file": ["wiki*:0.7", "books*"]}, "has no weight"),
        ({"input_file": ["wiki*:0.7", "books*:x"]}, r"books\*:x: no file matches"),
        ({"input_file": ["wiki*:0.7", "books*:-1"]}, "a number above 0"),
        ({"eval_input_file": ["wiki*:0.7"]}, "leave the weight out"),
    ):
        with pytest.raises(UserError, match=message):
            run(folder, **{"input_file": WEIGHTED} | changes)
    with pytest.raises(UserError, match="source_temperature=0.5: must be at least 1"):
        run_pretraining.Options(**flags(folder, source_temperature=0.5))
