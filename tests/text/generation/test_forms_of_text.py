"""The same documents give the same records, in whatever form their files are."""

import pytest

from tests.packed import pack
from tests.text.generation.settings import TEXT, make_settings
from text.corpus import formats
from text.generation.generate import generate

FORMS = {
    suffix: lambda text, s=suffix: pack(text, s) for suffix in ("gz", "bz2", "zst")
}


@pytest.fixture
def expected(folder):
    """The records of plain text."""
    (folder / "text.txt").write_text(TEXT * 20)
    generate(make_settings(folder, dupe_factor=1))
    return (folder / "out.tfrecord").read_bytes()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_records(folder, expected, monkeypatch, form, workers):
    monkeypatch.setattr(formats, "_PIECE_BYTES", 2_000)  # so that there are several
    path = folder / f"text.{form}"
    path.write_bytes(FORMS[form]((TEXT * 20).encode()))
    settings = make_settings(
        folder,
        dupe_factor=1,
        input_files=(str(path),),
        output_files=(str(folder / "found"),),
    )
    generate(settings, num_workers=workers)
    assert (folder / "found").read_bytes() == expected
