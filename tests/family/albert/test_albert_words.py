"""Records as a person reads them, whatever their pieces are called."""

import inspect_records
import tests
from tests import jobs

GOLDEN = tests.GOLDEN
TEXT = "A: -> vt: try: return mapping[key] except keyerror: return default internal "


def test_sentencepiece_shows_the_spaces_of_the_text(capsys, tmp_path):
    report = tmp_path / "report.html"
    given = {
        "input_file": [str(GOLDEN / "albert" / "data" / "records.tfrecord")],
        "vocab_file": str(GOLDEN / "sentencepiece" / "tiny.model"),
        "report_file": str(report),
        "num_shown": 1,
    }
    jobs.run(inspect_records, given)
    shown = " ".join(capsys.readouterr().out.split())
    # As the text was, but that a masked piece is apart from what it may belong to.
    assert f"{TEXT}[MASK→▁][MASK→place][MASK→holder] for () or [MASK→[]" in shown
    assert "mapping[key] except keyerror: return" in report.read_text("utf-8")
