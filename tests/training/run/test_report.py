"""What a run says of its progress: lines, metrics.jsonl, TensorBoard and curves."""

import json

from matplotlib.figure import Figure

from training.backend import tf
from training.run import report
from training.storage.folder import Folder
from files import sources
from text.records import framing


def test_report_writes_lines_and_curves(tmp_path, capsys, drawn):
    log = report.Report(Folder.open(str(tmp_path)), total_steps=400, batch_size=32)
    log.begin(0)
    log.training(100, {"loss": 5.5, "masked_lm_loss": 5.0}, updates=100, seconds=50.0)
    log.evaluation(100, {"loss": 5.25})
    printed = capsys.readouterr().out.splitlines()
    assert [line[9:] for line in printed] == [
        "compiling the first update",
        "step 100/400 (25%): loss 5.5, masked_lm_loss 5, 64 examples/s, 2m 30s left",
        "step 100, held out: loss 5.25",
    ]
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "step": 100,
            "kind": "train",
            "loss": 5.5,
            "masked_lm_loss": 5.0,
            "examples_per_second": 64.0,
        },
        {"step": 100, "kind": "eval", "loss": 5.25},
    ]
    assert _scalars(tmp_path) == {
        ("loss", 100): 5.5,
        ("masked_lm_loss", 100): 5.0,
        ("examples_per_second", 100): 64.0,
    }
    assert _scalars(tmp_path / "eval") == {("loss", 100): 5.25}
    assert log.draw() == f"{tmp_path}/curves.png"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_all_scores_are_printed_on_as_many_lines_as_they_need(tmp_path, capsys):
    log = report.Report(Folder.open(str(tmp_path)), total_steps=1, batch_size=1)
    scores = {f"a_score_with_a_long_name_{n}": 0.5 for n in range(7)}
    log.scores("dev", scores)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(len(line) < 120 for line in lines)
    shown = ", ".join(line[9:].removeprefix("dev: ") for line in lines)
    assert shown == ", ".join(f"{name} 0.5" for name in scores)


VALUES = {
    "loss": 7.123456,
    **{f"a_loss_with_a_long_name_{n}": 1.0 for n in range(9)},
    "masked_lm_accuracy": 0.5,
}


def test_a_line_fits_a_terminal_and_the_rest_is_in_the_file(tmp_path, capsys):
    log = report.Report(
        Folder.open(str(tmp_path)), total_steps=10**6, batch_size=32, model="student"
    )
    values = VALUES | {"skipped_updates": 3}
    log.training(999_999, values, updates=1, seconds=5000.0)
    log.evaluation(999_999, VALUES)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) < 120 for line in lines)
    assert "loss 7.123, skipped_updates 3, " in lines[0] and "1h 23m left" in lines[0]
    rows = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [VALUES.items() <= row.items() for row in rows] == [True, True]


def test_a_terminal_has_a_live_line_and_nothing_stays_of_it(
    tmp_path, capsys, terminal, monkeypatch
):
    log = report.Report(Folder.open(str(tmp_path)), total_steps=10**6, batch_size=32)
    monkeypatch.setattr(report.progress, "TERMINAL_SECONDS", 0)
    log.begin(0)
    assert terminal.read().endswith("\r\x1b[Kstep 0/1000000 (0%)")
    log.live(1000, VALUES, updates=100, seconds=10.0)
    shown = terminal.read()
    assert (
        shown == "\r\x1b[Kstep 1000/1000000 (0%): loss 7.123, 320 examples/s, 1d 3h l"
    )
    assert len(shown) == len("\r\x1b[K") + terminal.columns - 1
    log.say("saved")
    assert terminal.read() == "\r\x1b[K"
    assert [x[9:] for x in capsys.readouterr().out.splitlines()] == [
        "compiling the first update",
        "saved",
    ]


def test_a_log_has_a_line_a_minute_instead(tmp_path, capsys, monkeypatch):
    log = report.Report(Folder.open(str(tmp_path)), total_steps=400, batch_size=32)
    log.live(1, {"loss": 9.0}, updates=1, seconds=10.0)
    monkeypatch.setattr(report, "_SECONDS_PER_LINE", 0)
    log.live(2, {"loss": 8.5}, updates=2, seconds=10.0)
    captured = capsys.readouterr()
    (line,) = captured.out.splitlines()
    assert line[9:] == "step 2/400 (0%): loss 8.5, 6.4 examples/s, 33m 10s left"
    assert captured.err == ""


def test_each_loss_can_be_followed_and_read(tmp_path, monkeypatch, drawn):
    """The small one of two losses is not a flat line, and no axis is logarithmic."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    log = report.Report(Folder.open(str(tmp_path)), total_steps=9, batch_size=1)
    for step in range(1, 9):
        values = {"loss": 9.7 - step, "masked_lm_loss": 9.0 - step}
        values["next_sentence_loss"] = 0.7 - step / 50
        log.training(step, values, updates=1, seconds=1.0)
    log.draw()
    assert {axis.get_yscale() for axis in figures[0].axes} == {"linear"}
    heights = {}
    for axis in figures[0].axes:
        low, high = axis.get_ylim()
        for line in axis.lines:
            drawn = line.get_ydata()
            heights[line.get_label()] = (max(drawn) - min(drawn)) / (high - low)
    assert min(heights.values()) > 0.5
    assert set(heights) == {"loss", "masked_lm_loss", "next_sentence_loss (right)"}


def test_a_run_too_short_for_a_report_has_its_evaluations_drawn():
    values = {"loss": 0.5, "accuracy": 0.75, "f1_macro": 0.5}
    evaluation = {"step": 9, "kind": "eval", **values}
    scores = {"loss": ["loss"], "accuracy": ["accuracy", "f1_macro"]}
    nothing = {"learning_rate": [], "gradient_norm": []}
    assert report._names([evaluation]) == scores | nothing
    trained = {"step": 5, "kind": "train", "loss": 1.0, "examples_per_second": 9.0}
    assert report._names([trained, evaluation]) == scores | nothing
    # Of what training reports, shares are scores, and neither speed nor perplexity is.
    trained |= {"disc_auc": 0.5, "skipped_updates": 0, "perplexity": 90.0}
    scores["accuracy"] = ["disc_auc", "accuracy", "f1_macro"]
    found = report._names([trained, evaluation])
    assert {k: sorted(v) for k, v in found.items()} == {
        k: sorted(v) for k, v in (scores | nothing).items()
    }


def _scalars(folder):
    """What TensorBoard reads of a folder: (tag, step) to value."""
    found = {}
    for path in folder.glob("events.out.tfevents.*"):
        for data in framing.read(str(path)):
            event = tf.compat.v1.Event.FromString(data)
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                number = float(tf.make_ndarray(value.tensor))
                found[value.tag, event.step] = number
    return found


def test_lines_of_repeated_steps_are_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"step": n, "kind": "train"}) + "\n" for n in (1, 2, 3)]
    Folder.open(str(tmp_path)).claim()
    path.write_text("".join(lines) + '{"step": 4, "ki')  # killed while writing
    report.Report(Folder.open(str(tmp_path)), total_steps=9, batch_size=1).begin(2)
    assert path.read_text() == "".join(lines[:2])


def test_a_bad_line_of_metrics_hides_none_behind_it(tmp_path, drawn):
    path = tmp_path / "metrics.jsonl"
    Folder.open(str(tmp_path)).claim()
    good = [json.dumps({"step": n, "kind": "eval", "loss": 1.0}) for n in (1, 2, 3)]
    bad = ['{"step": 1,', "[1]", "7", '{"step": "one", "kind": "eval"}', "caf\udce9"]
    lines = [good[0], *bad, good[1], good[2]]
    content = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    path.write_bytes(content)
    written = path.stat().st_mtime_ns
    log = report.Report(Folder.open(str(tmp_path)), total_steps=9, batch_size=1)
    log.begin(3)  # nothing is to be cut: the file is not written again
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, written)
    log.begin(2)
    assert path.read_bytes() == content[: -len(good[2]) - 1]
    assert log.draw()
    # A whole line without its end, as of a user's editor, does not swallow the next.
    path.write_text(good[0])
    log.begin(1)
    log.evaluation(2, {"loss": 2.0})
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [
        1,
        2,
    ]


def test_where_appending_is_dear_lines_are_written_together(tmp_path, monkeypatch):
    """On gs:// to append is to write the whole file again."""
    monkeypatch.setattr(sources, "is_remote", lambda path: True)
    path = tmp_path / "metrics.jsonl"
    log = report.Report(Folder.open(str(tmp_path)), total_steps=9, batch_size=1)
    log.begin(0)
    sizes = []
    for step in range(1, 6):
        log.evaluation(step, {"loss": 1.0})
        sizes.append(len(path.read_text().splitlines()))
    assert sizes == [1] * 5
    log.say("saved")  # what is reported of a step is there once it is saved
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [
        1,
        2,
        3,
        4,
        5,
    ]


def test_host_that_is_no_chief_writes_nothing(tmp_path, capsys):
    log = report.Report(
        Folder.open(str(tmp_path)), total_steps=9, batch_size=1, active=False
    )
    log.begin(0)
    log.training(1, {"loss": 1.0}, updates=1, seconds=1.0)
    assert log.draw() is None
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""
