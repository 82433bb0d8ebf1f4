"""The folder of an export: replaced as a whole, and nothing else is removed."""

import json
import os
import pathlib

import pytest

from errors import UserError
from files import local
from serving import checksums, export_folder
from serving.predictor import _find


def replace(final, content):
    """Exports a file, as `export.save` does."""
    with export_folder.replacing(str(final)) as folder:
        pathlib.Path(folder, "file").write_text(content)
        if content == "bad":
            raise UserError("bad")
        card = export_folder.write_card(folder, str(final), f"card of {content}")
        files = ["file", "README.md", "export.json"]
        description = {"files": files, "card": card}
        pathlib.Path(folder, "export.json").write_text(json.dumps(description))


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


EXPORTED = ["export", "export/README.md", "export/export.json", "export/file"]


def left_by_a_killed_process(final, name="export"):
    """The name of a folder in which it wrote."""
    place = local.temporary_name(str(final.parent / name))
    return pathlib.Path(place.replace(f"~{os.getpid()}", "~4194305"))


def test_an_export_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    final = tmp_path / "export"
    replace(final, "first")
    replace(final, "second")
    with pytest.raises(UserError):
        replace(final, "bad")
    assert (final / "file").read_text() == "second"
    assert everything(tmp_path) == EXPORTED


def test_a_card_that_a_user_changed_stays(tmp_path):
    final, card = tmp_path / "export", tmp_path / "export" / "README.md"
    replace(final, "first")
    assert card.read_text() == "card of first"
    replace(final, "second")
    assert card.read_text() == "card of second"
    for written in ("completed", ""):
        card.write_text(written)
        for content in ("third", "fourth"):
            replace(final, content)
            assert card.read_text() == written
    card.unlink()
    replace(final, "fifth")
    assert card.read_text() == "card of fifth"
    assert everything(tmp_path) == EXPORTED


def test_an_export_killed_between_its_renames_is_found_again(tmp_path):
    final = tmp_path / "export"
    replace(final, "first")
    old = left_by_a_killed_process(final, "export.replaced")
    final.rename(old)
    replace(final, "second")
    assert everything(tmp_path) == EXPORTED
    # The new one is whole and was checked; the old one has no name any more.
    new = left_by_a_killed_process(final)
    final.rename(new)
    for directory in (tmp_path, final):
        assert _find(str(directory))[1] == str(new / "export.json")
    export_folder.recover(str(tmp_path), os.listdir(tmp_path))
    assert (final / "file").read_text() == "second"
    # Killed while it wrote: not whole, and removed by the next export alone.
    new.mkdir()
    (new / "file").write_text("half")
    export_folder.recover(str(tmp_path), os.listdir(tmp_path))
    assert new.exists()
    replace(final, "third")
    assert everything(tmp_path) == EXPORTED


def test_a_process_that_exports_is_left_alone(tmp_path):
    final = tmp_path / "export"
    running = local.temporary_name(str(final))
    running = pathlib.Path(running.replace(f"~{os.getpid()}", f"~{os.getppid()}"))
    running.mkdir()
    replace(final, "first")
    assert running.exists()
    with local.hold_lock(str(final)):
        with pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
            replace(final, "second")
        final.rename(left_by_a_killed_process(final))
        export_folder.recover(str(tmp_path), os.listdir(tmp_path))
        assert not final.exists()
    export_folder.recover(str(tmp_path), os.listdir(tmp_path))
    assert (final / "file").read_text() == "first"


@pytest.mark.parametrize("place", ["notes", "text/2/saved_model.pb", ".hidden"])
def test_what_an_export_did_not_make_is_not_removed(tmp_path, place):
    final = tmp_path / "export"
    mine = [final / place]
    for name in ("writing-export", "replaced-export", ".export", ".export~bert~mine"):
        mine.append(tmp_path / name / "thesis.txt")
    replace(final, "first")
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    message = (
        f"^{mine[0]}: is not part of an export, and an export would replace it; move"
    )
    for attempt in (
        lambda: export_folder.check_place(str(tmp_path)),
        lambda: replace(final, "second"),
    ):
        with pytest.raises(UserError, match=message):
            attempt()
    assert [path.read_text() for path in mine] == ["mine"] * len(mine)
    assert (final / "file").read_text() == "first"


def test_an_export_that_does_not_say_what_it_holds_is_not_removed(tmp_path):
    final = tmp_path / "export"
    replace(final, "first")
    (final / "export.json").write_text("{}")
    with pytest.raises(UserError, match="README.md: is not part of an export"):
        replace(final, "second")
    assert (final / "file").read_text() == "first"


def test_an_export_takes_no_place_that_is_not_an_exports(tmp_path):
    final = tmp_path / "export"
    export_folder.check_place(str(tmp_path))
    final.mkdir()
    export_folder.check_place(str(tmp_path))  # empty
    replace(final, "first")
    export_folder.check_place(str(tmp_path))
    elsewhere = final.rename(tmp_path / "elsewhere")
    for target in (elsewhere, tmp_path / "nothing"):
        final.symlink_to(target)
        with pytest.raises(UserError, match="export: is a link, and an export would"):
            export_folder.check_place(str(tmp_path))
        final.unlink()
    final.write_text("mine")
    with pytest.raises(UserError, match="export: is a file, and an export would"):
        export_folder.check_place(str(tmp_path))


def test_empty_folders_are_not_files(tmp_path):
    (tmp_path / "text" / "1" / "assets").mkdir(parents=True)
    (tmp_path / "text" / "1" / "model").write_text("x")
    assert export_folder.files(str(tmp_path)) == ["text/1/model"]


def test_an_empty_folder_of_a_user_is_not_removed(tmp_path):
    final = tmp_path / "export"
    replace(final, "first")
    (final / "text" / "1" / "assets").mkdir(parents=True)  # which TensorFlow makes
    replace(final, "second")
    (final / "empty").mkdir()
    with pytest.raises(UserError, match="empty: is not part of an export"):
        replace(final, "third")
    assert (final / "empty").is_dir()


def test_a_model_is_told_from_others_by_its_weights_and_settings():
    """Not by an export made again, whose graph may differ."""
    weights = [f"{model}/1/variables/variables.index" for model in ("text", "tensors")]
    others = ["text/1/saved_model.pb", "processing/1/variables/variables.index"]
    content = {"form": "label", "checksums": dict.fromkeys([*weights, *others], "a")}
    digest = checksums.digest_of_model(content)
    assert checksums.digest_of_model({**content, "form": "span"}) != digest
    for name in ("card", "global_step"):
        assert checksums.digest_of_model({**content, name: "b"}) == digest
    for name in (*weights, *others):
        changed = {**content, "checksums": {**content["checksums"], name: "b"}}
        is_same = checksums.digest_of_model(changed) == digest
        assert is_same == (name in others)
