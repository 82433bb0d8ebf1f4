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
