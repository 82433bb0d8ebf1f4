"""Benchmarks that are run rarely, at tiny sizes on whatever is there."""

import json
import sys

import pytest

from benchmarks import gpu, gpu_report, input
from tests import jobs


@pytest.mark.exhaustive
def test_every_step_has_a_figure_or_a_reason(tmp_path):
    """Only ours is installed; peers are lines that say so."""
    line = [sys.executable, "-m", "benchmarks.gpu", "--small", "--minutes=30"]
    done = jobs.finished([*line, f"--output_dir={tmp_path}"])
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "gpu.md").read_text()
    assert done.stdout == page
    steps = json.loads((tmp_path / "gpu.json").read_text())["steps"]
    assert list(steps) == [step.name for step in gpu.steps(gpu.SMALL_SETTINGS)]
    for name, figures in steps.items():
        if "transformers" in name:
            assert figures["reason"].startswith("does not run: ")
            continue
        assert "reason" not in figures, (name, figures["reason"])
        if "system" in figures:
            assert 0 < figures["lowest"] <= figures["ms"] <= figures["highest"]
            assert figures["share_of_product"] > 0
            is_started_again = gpu.SYSTEMS[figures["system"]][1]
            assert is_started_again == ("first_update_cached" in figures)
        if "records_setting" in figures:
            assert figures["share_of_bare_update"] > 0
    assert page.count(": 0 differ") == 1
    assert page.count(" passed in ") == 1


def fails(bench, seconds, note):
    note(**gpu_report.spread([2.0, 1.0, 4.0]), examples_per_second=4000.0, bytes=10**9)
    raise KeyError("a mistake of ours")


def step(name, work):
    size = gpu.SMALL_SETTINGS[gpu.TINY]
    known = {"setting": gpu.TINY, "system": name, "flop": 10**9}
    return gpu.Step(gpu_report.update_name(gpu.TINY, name), 60, work, known), size


def test_what_fails_or_has_no_time_is_a_line_and_the_rest_is_kept(tmp_path):
    report = gpu_report.Report(
        str(tmp_path),
        {"date": "today", "machine": {"GPU": "none"}, "settings": [gpu.TINY]},
    )
    bench = gpu.Bench(gpu.Options(output_dir=str(tmp_path)), {}, tmp_path, report)
    gpu.run_step(bench, step("ours", fails)[0], 60)
    gpu.run_step(bench, step("late", fails)[0], 1)
    page = (tmp_path / "gpu.md").read_text()
    assert "| ours | 2.0 | 1.0 to 4.0 | 4,000 |  | 1.00 |" in page
    assert "a mistake of ours" in page
    assert "| late | not run: no time was left |" in page
    assert json.loads((tmp_path / "gpu.json").read_text())["steps"] == report.steps


@pytest.mark.exhaustive
def test_every_stage_of_the_input_is_measured(capsys):
    input.main(
        input.Options(records=600, lengths=[32], batch_size=16, rounds=1, turn=320)
    )
    lines = capsys.readouterr().out.splitlines()
    stages = ["shuffled records", "parsed batches", "parsed batches, mixed"]
    stages.append("in the updates")
    for kind in ("static masks", "dynamic masks", "dynamic, whole words"):
        [at] = (n for n, line in enumerate(lines) if f" tokens, {kind}: " in line)
        more = [] if kind == "static masks" else ["masks, drawn on these cores"]
        for name, line in zip([*stages, *more], lines[at + 1 :], strict=False):
            assert line.startswith(name) and " to " in line
