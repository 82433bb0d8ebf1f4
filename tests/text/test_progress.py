"""Progress of long jobs: the unit fits the amount."""

import pytest

from text import progress


@pytest.mark.parametrize(
    ("size", "said"),
    [(19_400, "19 KB (100%)"), (2_000_000, "2 MB (100%)"), (0, "0 KB")],
)
def test_small_files_are_counted_in_kilobytes(capsys, size, said):
    with progress.Progress("counting", size, "MB", scale=1e6) as shown:
        shown.advance(size)
    assert capsys.readouterr().err.startswith(f"counting: {said}")


def test_the_first_work_of_a_job_that_starts_slowly_is_not_extrapolated(
    capsys, monkeypatch
):
    seconds = iter([0.0, 30.0, 30.0, 30.0, 42.0, 42.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    shown = progress.Progress("predicting", 100, "rows", starts_slowly=True)
    shown.advance(1)  # after 30 seconds, mostly of tracing
    shown.advance(12)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "predicting: 1 row (1%)"
    assert lines[-1] == "predicting: 13 rows (13%), 1 row/s, 1m 27s left"


def test_the_live_line_fits_the_terminal_and_is_replaced(terminal):
    with progress.Progress("무엇" * 40, 2, "rows") as shown:
        for _ in range(2):
            shown.shown = -progress.TERMINAL_SECONDS
            shown.advance(1)
    begin, *lines = terminal.read().split("\r\x1b[K")
    # Each of these letters takes two columns.
    assert begin == "" and lines[:2] == ["무엇" * 14 + "무"] * 2
    assert "2 rows (100%)" in lines[2] and lines[2].endswith("took 0s\r\n")
