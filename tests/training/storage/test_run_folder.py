"""What may be done to the names in an output_dir: nothing of the user's is ever lost."""

import json
import os
import pathlib
import re
import sys

import numpy as np
import pytest

from training.storage import checkpoint, run_folder
from errors import UserError
from files import local
from tests import forked

ENDED = 4194305  # no process has this number


def save(folder, step, keep=1):
    tensors = {"kernel": np.full(3, step, np.float32), "global_step": np.int64(step)}
    return checkpoint.save(str(folder), step, tensors, keep)


def put(folder, step):
    """A checkpoint that somebody else puts into a folder."""
    tensors = {"kernel": np.full(3, -step, np.float32), "global_step": np.int64(step)}
    folder.mkdir(exist_ok=True)
    checkpoint.write_bundle(str(folder / f"model.ckpt-{step}"), tensors)


def value(folder, name):
    return checkpoint.read(str(folder / name))["kernel"][0]


def contents(folder):
    """All that is in a folder, without the list of what this program made there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != run_folder.RECORD
    }


# --- Files ---------------------------------------------------------------------------


def test_a_users_file_is_kept_under_another_name(tmp_path, capsys):
    path = tmp_path / "vocab.txt"
    path.write_text("mine")
    (tmp_path / "vocab.txt.kept-1").write_text("older")
    for content in ("ours", b"ours, again"):
        run_folder.write_file(str(path), content)
    assert contents(tmp_path) == {
        "vocab.txt": b"ours, again",
        "vocab.txt.kept-1": b"older",
        "vocab.txt.kept-2": b"mine",
    }
    assert f"{path} was not made by this program" in capsys.readouterr().err


def test_a_users_file_of_the_same_content_stays_the_users(tmp_path, capsys):
    path = tmp_path / "vocab.txt"
    path.write_text("same")
    run_folder.write_file(str(path), "same")
    assert contents(tmp_path) == {"vocab.txt": b"same"}
    assert capsys.readouterr().err == ""
    run_folder.write_file(str(path), "other")
    assert contents(tmp_path) == {"vocab.txt": b"other", "vocab.txt.kept-1": b"same"}


def test_a_folder_in_a_files_place_is_kept(tmp_path):
    (tmp_path / "search.json").mkdir()
    (tmp_path / "search.json" / "notes").write_text("mine")
    run_folder.write_file(str(tmp_path / "search.json"), "ours")
    assert contents(tmp_path) == {
        "search.json": b"ours",
        "search.json.kept-1/notes": b"mine",
    }


def test_what_is_made_is_listed_before_it_appears(tmp_path, monkeypatch):
    def full(*given):
        raise OSError(28, "No space left on device")

    run_folder.write_file(str(tmp_path / "a"), "ours")
    with (
        monkeypatch.context() as patch,
        pytest.raises(UserError, match="No space left"),
    ):
        patch.setattr(local.os, "replace", full)
        run_folder.write_file(str(tmp_path / "b"), "never listed, so never written")
    assert contents(tmp_path) == {"a": b"ours"}
    assert run_folder.made(str(tmp_path)) == {"a"}


def test_an_entry_that_was_lost_costs_a_copy_and_nothing_else(tmp_path):
    path = tmp_path / "eval_results.txt"
    run_folder.write_file(str(path), "first")
    (tmp_path / run_folder.RECORD).write_text('["others"]')
    run_folder.write_file(str(path), "second")
    (tmp_path / run_folder.RECORD).write_text("{ cut off")
    run_folder.write_file(str(path), "third")
    assert sorted(contents(tmp_path).values()) == [b"first", b"second", b"third"]
    assert path.read_text() == "third"


CLAIM = """
import sys
from training.storage import lease, run_folder
for number in range(150):
    run_folder.claim(f"{sys.argv[1]}/{sys.argv[2]}-{number}")
    run_folder.release(f"{sys.argv[1]}/{sys.argv[2]}-{number - 1}")
"""


@pytest.mark.slow
def test_two_processes_change_a_record_without_loss(tmp_path):
    (tmp_path / "claim.py").write_text(CLAIM)
    folder = tmp_path / "output"
    folder.mkdir()
    line = [sys.executable, str(tmp_path / "claim.py"), str(folder)]
    with open(os.devnull, "w") as said:
        processes = [
            forked.Process([*line, name], stdout=said, stderr=said) for name in "ab"
        ]
        assert [process.wait() for process in processes] == [0, 0]
    assert run_folder.made(str(folder)) == {"a-149", "b-149"}
    assert [path.name for path in folder.iterdir()] == [run_folder.RECORD]


def test_a_checkpoint_whose_entry_is_lost_is_still_the_newest(tmp_path, monkeypatch):
    """As may be on gs://, while an evaluation writes there."""
    monkeypatch.setattr(run_folder, "made_steps", lambda directory: [])
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert run_folder.newest_of(str(tmp_path)) == "model.ckpt-2"


# --- Checkpoints ---------------------------------------------------------------------


def test_checkpoints_of_others_are_never_dropped(tmp_path):
    for step in (1, 2, 30):
        put(tmp_path, step)
    (tmp_path / "model.ckpt-5.notes").write_text("mine")
    theirs = contents(tmp_path)
    for step in (5, 6, 7):
        save(tmp_path, step)
    assert run_folder.steps(str(tmp_path)) == [1, 2, 7, 30]
    save(tmp_path, 8, keep=0)
    run_folder.keep(str(tmp_path), [8])
    assert run_folder.steps(str(tmp_path)) == [1, 2, 8, 30]
    run_folder.drop_all(str(tmp_path))
    assert contents(tmp_path) == theirs


def test_a_checkpoint_in_the_way_is_kept_and_can_be_read(tmp_path):
    put(tmp_path, 4)
    (tmp_path / "model.ckpt-40.index").write_text("mine")
    save(tmp_path, 4)
    save(tmp_path, 5)
    assert value(tmp_path, "model.ckpt-4.kept-1") == -4
    assert value(tmp_path, "model.ckpt-5") == 5
    assert not list(tmp_path.glob("model.ckpt-4.[id]*"))  # ours was dropped


def test_best_of_others_is_not_forgotten(tmp_path):
    put(tmp_path / "best", 12)
    theirs = contents(tmp_path)
    run_folder.forget_best(str(tmp_path))
    assert contents(tmp_path) == theirs
    (tmp_path / "evaluations.json").write_text("my table")
    save(tmp_path / "best", 20, keep=0)
    run_folder.forget_best(str(tmp_path))
    assert contents(tmp_path) == theirs | {"evaluations.json": b"my table"}
    assert run_folder.best_of(str(tmp_path)) is None
    copied = '[{"step": 12, "score": 0.5}]'
    (tmp_path / "evaluations.json").write_text(copied)
    run_folder.forget_best(str(tmp_path))
    assert contents(tmp_path) == theirs | {"evaluations.json.kept-1": copied.encode()}


def test_what_is_released_is_the_users(tmp_path):
    save(tmp_path, 1)
    run_folder.release(str(tmp_path / "model.ckpt-1"))
    save(tmp_path, 2)
    run_folder.drop_all(str(tmp_path))
    assert run_folder.steps(str(tmp_path)) == [1]


# --- What a killed process left ------------------------------------------------------


def test_only_what_ended_processes_left_half_written_is_removed(tmp_path):
    own = local.temporary_name(str(tmp_path / "model.ckpt-4"))
    ended = own.replace(f"~{os.getpid()}", f"~{ENDED}")
    left = [
        f"{ended}.index",
        f"{ended}.data-00000-of-00001.tempstate8",
        f"{ended.replace(local.host(), 'elsewhere')}.index",
        ended.replace("model.ckpt-4", "vocab.txt"),
    ]
    stays = [
        f"{own.replace(f'~{os.getpid()}', f'~{os.getppid()}')}.index",  # it runs
        ended.replace("model.ckpt-4", "vocab.txt").replace(local.host(), "elsewhere"),
        *(
            str(tmp_path / name)
            for name in ("writing-style-notes.md", ".mine", "a~bert~")
        ),
        str(tmp_path / "model.ckpt-9.data-00000-of-00001"),  # without .index
        str(tmp_path / "writing-model.ckpt-3.index"),
    ]
    folders = [tmp_path / "writing-prompts", pathlib.Path(f"{ended}.folder")]
    for folder in folders:
        folder.mkdir()
        stays.append(str(folder / "train.tsv"))
    for path in (*left, *stays):
        pathlib.Path(path).write_text("x")
    run_folder.clear(str(tmp_path))
    assert sorted(contents(tmp_path)) == sorted(
        str(pathlib.Path(path).relative_to(tmp_path)) for path in stays
    )


# --- Settings ------------------------------------------------------------------------


def test_run_goes_on_with_the_settings_it_began_with(tmp_path):
    directory = str(tmp_path)
    run_folder.note_settings(directory, {"seed": 1, "steps": 10, "text": "a" * 64})
    # Nothing was learned yet: the run may still begin otherwise.
    run_folder.note_settings(directory, {"seed": 2, "steps": 10, "text": "a" * 64})
    save(tmp_path, 1)
    run_folder.note_settings(directory, {"seed": 2, "steps": 10, "text": "a" * 64})
    message = (
        "seed was 2 and is now 1; steps was 10 and is now 20; text has changed; choose"
    )
    with pytest.raises(UserError, match=message):
        run_folder.note_settings(directory, {"seed": 1, "steps": 20, "text": "b" * 64})


FILES = [[f"records-{n}.tf_record", n] for n in range(16)]
PRETRAINING = {"input_file": FILES, "seed": 1}
OTHERS = {
    "run_pretraining.py": PRETRAINING,
    "the task Classifier": {"task": "Classifier", "seed": 1},
    "the task Squad": {"task": "Squad", "seed": 1},
    "run_text_to_text.py": {"task": "Squad", "max_target_length": 9},
    "the task Parity": {"task": "Parity"},
}


@pytest.mark.parametrize("script", OTHERS)
def test_a_run_of_another_script_is_named(tmp_path, script):
    directory = str(tmp_path)
    run_folder.note_settings(directory, OTHERS[script])
    save(tmp_path, 1)
    message = f"{directory}: contains a run of {script}; choose another --output_dir"
    for other, settings in OTHERS.items():
        if other != script:
            with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
                run_folder.check_settings(directory, settings)
    run_folder.check_settings(directory, OTHERS[script])


def test_long_lists_of_changed_settings_are_counted(tmp_path):
    directory = str(tmp_path)
    run_folder.note_settings(directory, PRETRAINING)
    save(tmp_path, 1)
    for files, message in (
        (FILES[:1], r"input_file was 16 files and is now \[\['records-0.tf_record',"),
        (FILES[::-1], "settings: input_file has changed; choose"),
    ):
        with pytest.raises(UserError, match=message):
            run_folder.check_settings(directory, {"input_file": files, "seed": 1})


def test_what_was_not_noted_had_its_default(tmp_path):
    directory = str(tmp_path)
    run_folder.note_settings(directory, {"seed": 1})
    save(tmp_path, 1)
    run_folder.check_settings(directory, {"seed": 1, "new": 5}, {"new": 5})
    with pytest.raises(UserError, match="new was 5 and is now 6"):
        run_folder.check_settings(directory, {"seed": 1, "new": 6}, {"new": 5})
    assert json.loads((tmp_path / "run.json").read_text()) == {"seed": 1}
    # Flags that are no settings of a run do not count, whatever their default is.
    run_folder.note_settings(directory, {"seed": 1, "new": 5}, {"new": 5, "xla": False})
    # From then on the run is held to it, whatever the default becomes.
    with pytest.raises(UserError, match="new was 5 and is now 6"):
        run_folder.check_settings(directory, {"seed": 1, "new": 6}, {"new": 6})


def test_a_link_to_nothing_is_kept_and_not_written_through(tmp_path, capsys):
    path, target = tmp_path / "run.json", tmp_path / "elsewhere.json"
    path.symlink_to(target)
    run_folder.write_file(str(path), "ours")
    assert path.read_text() == "ours" and not path.is_symlink()
    assert (tmp_path / "run.json.kept-1").readlink() == target
    assert not target.exists()
    assert f"renamed to {path}.kept-1" in capsys.readouterr().err
