"""Every file of text that a script reads, with what would fill the memory if it could."""

import pytest

from tests import hostile

# They read no text, or not what they are given.
WITHOUT = hostile.ONLY_READ.keys() | hostile.READ_NO_TEXT.keys()


@pytest.mark.parametrize("number", [2, pytest.param(99, marks=pytest.mark.exhaustive)])
def test_a_file_that_would_fill_the_memory_is_refused_in_one_line(number, tmp_path):
    cases = []
    for script in hostile.SCRIPTS.keys() - WITHOUT:
        flags = hostile.make_files(script, tmp_path / script)
        cases += hostile.file_cases(script, flags, tmp_path / script)
    assert len(cases) > 30
    outcomes = list(hostile.run(tmp_path, hostile.sample(cases, number), seconds=300))
    assert len(outcomes) == min(number, len(cases))
    odd = [outcome for outcome in outcomes if outcome["kind"] != "one line"]
    assert not [hostile.described(outcome) for outcome in odd]
