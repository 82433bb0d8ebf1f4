"""From a wiki's dump of three languages to ten updates, with killed generations."""

import pytest

from benchmarks import from_dump

pytest.importorskip("mwparserfromhell")


@pytest.mark.exhaustive
def test_a_dump_becomes_a_vocabulary_records_and_a_model(tmp_path, capsys):
    """A generation that is killed twice ends with the bytes of an undisturbed one."""
    chosen = from_dump.Options(folder=str(tmp_path), megabytes=3)
    from_dump.main(chosen)
    printed = capsys.readouterr().out
    assert printed.count("killed after") == 2 and "as undisturbed" in printed
    assert (tmp_path / "model" / "model.ckpt-10.index").exists()
