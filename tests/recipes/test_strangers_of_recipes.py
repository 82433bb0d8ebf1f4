"""No file that a recipe did not make is ever removed or overwritten."""

import pytest

from errors import UserError
from recipes import ablations, augment, collect_documentation, demo, documentation
from tests import test_strangers_files
from tests.given import of_nothing
from tests.recipes.scripts import of_augmentation, of_documentation
from tests.strangers import emptied, plant, planted
from tests.test_strangers_files import EXISTS, FILE, NAMED, NOT_OURS, OUT, Case

earlier = test_strangers_files.earlier
small_and_fast = test_strangers_files.small_and_fast
SCRIPTS = {
    "augmentation": (augment, of_augmentation),
    "documentation": (collect_documentation, of_documentation),
    "demo": (demo, of_nothing),
    "ablations": (ablations, of_nothing),
}
PROSE = FILE | {"held_out_file": "ROOT/output/held"}
PACKAGES = PROSE | {"package_dir": "ROOT/output"}
JOBS = {
    "augmentation": Case("augmentation", FILE, arrange=EXISTS),
    "documentation": Case("documentation", PACKAGES, arrange=planted("made", "held")),
}
REFUSED_JOBS = {
    "no texts to rewrite": Case(
        "augmentation", FILE, "contains no text", FILE, emptied
    ),
    "few packages": Case(
        "documentation",
        PACKAGES | {"package_sentences": 999},
        "at least 2 are needed",
        arrange=EXISTS,
    ),
    "documentation is a stranger's": Case(
        "documentation", PACKAGES, NOT_OURS, strangers=("train.tsv",)
    ),
    "demo": Case("demo", OUT, "did not make", arrange=planted("full/notes.txt")),
    "ablations": Case("ablations", {"table": ["5"]} | OUT, "did not make"),
}


def end(script, **flags):
    raise UserError("the end")


@pytest.fixture(autouse=True)
def of_recipes(monkeypatch, tmp_path):
    for name, row in SCRIPTS.items():
        monkeypatch.setitem(test_strangers_files.SCRIPTS, name, row)
    monkeypatch.setattr(demo, "_run", end)  # it takes minutes
    packages = tmp_path / "given"
    monkeypatch.setattr(
        documentation,
        "source_files",
        lambda: sorted((p.parent.name, str(p)) for p in packages.glob("*/*.py")),
    )


@pytest.mark.parametrize("name", JOBS)
def test_job(name, tmp_path, earlier):
    test_strangers_files.try_case(JOBS[name], tmp_path, earlier, NAMED)


@pytest.mark.parametrize("name", REFUSED_JOBS)
def test_refused_job(name, tmp_path, earlier):
    test_strangers_files.try_case(REFUSED_JOBS[name], tmp_path, earlier)


def test_strangers_in_the_folder_of_a_demo(tmp_path):
    """Its own folder it takes up again, whatever else is in it by then."""
    for _ in range(2):
        with pytest.raises(UserError, match="the end"):
            demo.main(demo.Options(output_dir=str(tmp_path)))
        plant(tmp_path / "full", ["notes.txt"])
