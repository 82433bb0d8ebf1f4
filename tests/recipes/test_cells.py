"""How cells run, fail, end and continue."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tests
from training.storage import checkpoint
from training.storage.folder import Folder
from errors import UserError
from recipes.comparisons import cells
from tests import jobs

SCRIPT = """
import pathlib, sys, time
output, what = pathlib.Path(sys.argv[1]), sys.argv[2]
if sys.argv[-1] == "--only_check_args":
    sys.exit("script.py: error: no such word" if what == "unknown" else 0)
with open(output.parent.parent / "order.txt", "a") as file:
    file.write(output.parent.name + "\\n")
print("working")
if what == "fail":
    sys.exit("script.py: error: it failed")
if what == "wait":
    time.sleep(60)
if what == "nothing":
    sys.exit()
if what == "3":
    lines = ['{"kind": "train", "examples_per_second": %s}' % n for n in (1, 9, 7)]
    lines.append('{"kind": "eval"}')
    (output / "metrics.jsonl").write_text("\\n".join(lines))
    numbers = b"x" * 50_000_000
    time.sleep(1.2)
(output / "results.json").write_text('{"eval_f1": %s}' % what)
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A plan's folder, with scripts next to it that take no time."""
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(cells, "_ROOT", str(tmp_path))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def cell(name, what="1", needs=(), **changes):
    words = (f"{{root}}/{name}/output", what)
    given = {"kind": "script", "needs": needs, "results_file": "results.json"} | changes
    return cells.Cell(name, "script.py", words, **given)


def run(root, plan_cells, number=1):
    known = {c.name: done for c in plan_cells if (done := cells.result_of(root, c))}
    found = {}
    runner = cells.Runner(
        str(root), number, lambda c, done: found.update({c.name: done["results"]})
    )
    return runner.run(plan_cells, known), found


def order(root):
    return (root / "order.txt").read_text().split()


@pytest.mark.parametrize("number", [1, 2])
def test_cells_run_once_after_those_that_they_need(root, capfd, number):
    some = [cell("c", "3", needs=("a", "b")), cell("a"), cell("b", "2", needs=("a",))]
    failures, found = run(root, some, number)
    assert not failures and order(root) == ["a", "b", "c"]
    assert {name: results["eval_f1"] for name, results in found.items()} == {
        "a": 1,
        "b": 2,
        "c": 3,
    }
    assert found["c"][cells.SPEED] == 7
    assert 50_000_000 < found["c"][cells.PEAK_MEMORY] < 200_000_000
    assert "[2/3" in capfd.readouterr().out
    assert run(root, [*some, cell("d", needs=("c",))])[1].keys() == {"d"}
    assert order(root) == ["a", "b", "c", "d"]
    assert "3 of 4 cells have finished earlier" in capfd.readouterr().out


def test_other_flags_than_those_of_a_finished_cell_are_refused(root):
    run(root, [cell("a")])
    with pytest.raises(UserError, match="was run with other flags .1, 2."):
        cells.result_of(str(root), cell("a", "2"))


def test_a_failure_stops_only_what_needs_it(root, capfd):
    some = [cell("a", "fail"), cell("b", needs=("a",)), cell("c")]
    failures, found = run(root, some)
    (results,) = found.values()
    assert list(found) == ["c"] and results["eval_f1"] == 1
    assert "exited with status 1; its last line: script.py: error: it f" in failures[0]
    assert failures[1:] == ["b: not run"]
    assert "working" in (root / "a" / "log.txt").read_text()


@pytest.mark.parametrize(
    "what, changes, message",
    [
        ("nothing", {}, "No such file"),
        ("2", {"metric": "eval_em"}, "results.json has no finite eval_em"),
        ("NaN", {"metric": "eval_f1"}, "results.json has no finite eval_f1"),
    ],
)
def test_without_its_results_a_cell_has_failed(root, what, changes, message):
    failures, found = run(root, [cell("a", what, **changes), cell("b")])
    assert len(failures) == 1 and message in failures[0] and "b" in found
    assert not (root / "a" / "cell.json").exists()


def test_a_folder_may_be_spelled_in_another_way_and_moved(root, monkeypatch):
    run(root, [cell("a")])
    monkeypatch.chdir(root.parent)
    root.rename(root.parent / "moved")
    assert cells.result_of("moved/", cell("a"))["results"] == {"eval_f1": 1}
    command = cell("a").command("moved/")
    assert command[2] == str(root.parent / "moved" / "a" / "output")


def test_a_damaged_file_is_named(root):
    run(root, [cell("a")])
    (root / "a" / "cell.json").write_text("{}")
    with pytest.raises(UserError, match="a/cell.json: damaged .*; delete it"):
        cells.result_of(str(root), cell("a"))


def test_flags_that_a_script_refuses_are_found_before_anything_runs(root):
    with pytest.raises(UserError, match="bad flags: script.py: error: no such word"):
        cells.check_flags(str(root), [cell("a", "unknown"), cell("b")])
    cells.check_flags(str(root), [cell("b")])
    # The flags that contain the script's are named. Frozen encoders have more of them.
    usual = cell("b", passed=("ner_flags",))
    frozen = cell("c", "unknown", passed=("ner_flags", "features_flags"))
    with pytest.raises(UserError, match="^--ner_flags or --features_flags:"):
        cells.check_flags(str(root), [usual, frozen])
    assert not (root / "order.txt").exists()


def test_only_own_weights_go_where_no_other_cell_needs_them(root):
    def planted(name):
        output = root / name / "output"
        output.mkdir(parents=True, exist_ok=True)
        for step in (1, 2):  # the first is somebody's
            checkpoint.write_bundle(
                str(output / f"model.ckpt-{step}"), {"w": np.ones(1)}
            )
            Folder.open(str(output)).claim()
        return output

    some = [cell("a", keeps_weights=False), cell("b")]
    outputs = [planted("a"), planted("b")]
    run(root, some)
    assert [Folder.open(str(output)).steps for output in outputs] == [[1], [1, 2]]
    planted("a")  # as if it had been killed between the two
    run(root, some)
    assert Folder.open(str(outputs[0])).steps == [1]
    assert (outputs[0] / "results.json").exists()


WAITING = """
import sys
sys.path.insert(0, sys.argv[1])
from recipes.comparisons import cells
cells._ROOT = sys.argv[2]
words = ("{root}/a/output", "wait")
cell = cells.Cell("a", "script.py", words, kind="script")
cells.Runner(sys.argv[3], 1, print).run([cell], {})
"""


@pytest.mark.exhaustive
def test_asked_to_end_it_ends_its_processes(root):
    line = [sys.executable, "-c", WAITING, tests.ROOT, root.parent, root]
    process = jobs.started(list(map(str, line)))
    while not (root / "order.txt").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    process.communicate()  # until no process has its stdout any more
    assert time.monotonic() - begun < 30 and process.returncode
    assert not (root / "a" / "cell.json").exists()


def test_a_process_that_outlived_its_parent_is_waited_for(root, capfd):
    folder = root / "a"
    folder.mkdir()
    lock = os.open(folder / ".cell~bert~lock", os.O_CREAT | os.O_RDWR)
    cells.fcntl.flock(lock, cells.fcntl.LOCK_EX)
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1)"], pass_fds=[lock]
    )
    os.close(lock)
    failures, found = run(root, [cell("a")])
    assert orphan.poll() == 0 and not failures and found
    assert "its process still runs since an earlier start" in capfd.readouterr().out
