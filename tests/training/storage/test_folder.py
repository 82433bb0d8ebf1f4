"""What is done to the files of an output_dir: nothing of the user's is ever lost."""

import json
import os
import pathlib
import re

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.folder import FOUND, Folder
from errors import UserError
from files import anywhere, local

ENDED = 4194305  # no process has this number
SETTINGS = {"seed": 1, "max_seq_length": 16}


@pytest.fixture
def folder(tmp_path):
    return Folder.open(str(tmp_path))


def save(folder, step, keep=1):
    tensors = {"kernel": np.full(3, step, np.float32), "global_step": np.int64(step)}
    return checkpoint.save(folder, step, tensors, keep)


def put(folder, step):
    """A checkpoint that somebody else puts into a folder."""
    folder.mkdir(exist_ok=True)
    checkpoint.write_bundle(str(folder / f"model.ckpt-{step}"), {"mine": np.ones(3)})


def contents(folder):
    """All files in a folder, but for the list of what was found there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != FOUND
    }


# --- Files ---------------------------------------------------------------------------


def test_a_folder_is_listed_once_and_knows_what_it_wrote(tmp_path, monkeypatch):
    folder = Folder.open(str(tmp_path))
    save(folder, 1)
    folder.note_settings(SETTINGS)
    folder.child("best").write("notes", "x")
    with monkeypatch.context() as patch:
        for name in ("listdir", "names", "exists"):
            patch.delattr(anywhere, name)
        save(folder, 2)
        folder.write("bert_config.json", "{}")
        assert (folder.steps, folder.newest) == ([2], "model.ckpt-2")
        assert folder.settings == SETTINGS
        assert folder.config_file == str(tmp_path / "bert_config.json")
        assert folder.holds_weights and not folder.best
    again = Folder.open(str(tmp_path))
    assert (again.names, again.theirs) == (folder.names | {FOUND}, set())


@pytest.mark.parametrize("again", [False, True])
def test_a_users_file_is_not_replaced_by_this_or_a_later_command(tmp_path, again):
    (tmp_path / "predictions.json").write_text("mine")
    folder = Folder.open(str(tmp_path))
    if again:
        folder.write("eval_results.txt", "ours")
        folder = Folder.open(str(tmp_path))
    before = contents(tmp_path)
    message = (
        "predictions.json: this program did not write it, and would replace it; move"
    )
    with pytest.raises(UserError, match=message):
        folder.write_files({"eval_results.txt": "new", "predictions.json": "ours"})
    assert contents(tmp_path) == before
    folder.write("predictions.json", "mine")  # its own content: nothing is to be done
    folder.write("eval_results.txt", "new")
    (tmp_path / "predictions.json").unlink()
    for content in ("ours", "ours, again"):
        Folder.open(str(tmp_path)).write("predictions.json", content)
        assert (tmp_path / "predictions.json").read_text() == content


@pytest.mark.parametrize("damage", ["", "[]", '{"found": '])
def test_a_damaged_list_makes_files_the_users(tmp_path, damage):
    Folder.open(str(tmp_path)).write("eval_results.txt", "ours")
    (tmp_path / FOUND).write_text(damage)
    with pytest.raises(UserError, match="did not write it"):
        Folder.open(str(tmp_path)).write("eval_results.txt", "new")


@pytest.mark.parametrize("guise", ["link", "link to nothing"])
def test_a_link_is_not_written_through(tmp_path, folder, guise):
    target = tmp_path / "elsewhere.json"
    folder.claim()
    (tmp_path / "run.json").symlink_to(target)
    if guise == "link":
        target.write_text("mine")
    folder.reopen()
    with pytest.raises(UserError, match="run.json: this program did not write it"):
        folder.write("run.json", "ours")
    assert target.exists() == (guise == "link")


def test_a_file_in_a_folders_place_is_refused(tmp_path):
    (tmp_path / "output").write_text("mine")
    with pytest.raises(
        UserError, match="output: cannot be read or written: it is not a folder"
    ):
        Folder.open(str(tmp_path / "output"))


# --- Whose folder it is --------------------------------------------------------------


def test_a_training_takes_a_folder_without_what_it_writes(tmp_path):
    for name in ("nohup.out", "log.txt", "events.out.tfevents.1.x", ".hidden", "notes"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "data").mkdir()
    folder = Folder.open(str(tmp_path))
    folder.check_settings(SETTINGS)
    folder.note_settings(SETTINGS)
    (tmp_path / "metrics.jsonl").write_text("ours, written before a kill")
    Folder.open(str(tmp_path)).check_settings(SETTINGS)


@pytest.mark.parametrize(
    "name",
    ["run.json", "metrics.jsonl", "bert_config.json", "task.json", "eval_results.txt"]
    + ["best", "eval", "runs", "teacher"],
)
@pytest.mark.parametrize("guise", ["file", "folder"])
def test_a_training_does_not_take_a_folder_with_names_of_its_own(tmp_path, name, guise):
    path = tmp_path / name
    path.write_text('{"distance": 10}') if guise == "file" else path.mkdir()
    for _ in range(2):
        with pytest.raises(UserError, match=f"^{path}: this program did not write it"):
            Folder.open(str(tmp_path)).check_settings(SETTINGS)
        Folder.open(str(tmp_path)).write("predictions.json", "of another command")


@pytest.mark.parametrize(
    "name",
    ["checkpoint", "bert_model.ckpt.index", "model.ckpt-7.index", "model.safetensors"],
)
def test_a_training_does_not_take_the_folder_of_another_model(tmp_path, name):
    (tmp_path / name).write_text("")
    folder = Folder.open(str(tmp_path))
    message = (
        f"{tmp_path / name}: these weights are not of a run in this folder; choose another "
        f"--output_dir (--init_checkpoint={tmp_path} starts from these weights)"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        folder.check_place()
    folder.check_place(trains=False)  # its results may be written there
    folder.write("eval_results.txt", "ours")
    with pytest.raises(UserError, match="these weights are not"):
        Folder.open(str(tmp_path)).check_place()


def test_a_copy_of_a_run_is_a_run(tmp_path, folder):
    folder.note_settings(SETTINGS)
    save(folder, 1)
    (tmp_path / FOUND).unlink()  # `cp output/*` leaves it behind
    Folder.open(str(tmp_path)).check_settings(SETTINGS)


# --- Checkpoints ---------------------------------------------------------------------


def test_checkpoints_that_were_found_are_never_dropped(tmp_path):
    for step in (1, 2, 30):
        put(tmp_path, step)
    theirs = contents(tmp_path)
    folder = Folder.open(str(tmp_path))
    for step in (5, 6, 7):
        save(folder, step)
    assert folder.steps == [1, 2, 7, 30]
    Folder.open(str(tmp_path)).drop_all()
    assert contents(tmp_path) == theirs


def test_what_early_stopping_left_is_forgotten(tmp_path, folder):
    folder.write("evaluations.json", '[{"step": 4, "score": 0.5}]')
    save(folder.child("best"), 4)
    again = Folder.open(str(tmp_path))
    assert folder.best.steps == again.best.steps == [4]
    again.forget_best()
    assert not again.best and not Folder.open(str(tmp_path)).best
    assert not contents(tmp_path)


# --- What a killed process left ------------------------------------------------------


def test_only_what_ended_processes_left_half_written_is_removed(tmp_path):
    own = local.temporary_name(str(tmp_path / "model.ckpt-4"))
    ended = own.replace(f"~{os.getpid()}", f"~{ENDED}")
    left = [
        f"{ended}.index",
        f"{ended}.data-00000-of-00001.tempstate8",
        f"{ended.replace(local.host(), 'elsewhere')}.index",
        ended.replace("model.ckpt-4", "vocab.txt"),
        str(tmp_path / "model.ckpt-9.data-00000-of-00001"),  # without .index
    ]
    stays = [
        f"{own.replace(f'~{os.getpid()}', f'~{os.getppid()}')}.index",  # it runs
        ended.replace("model.ckpt-4", "vocab.txt").replace(local.host(), "elsewhere"),
        *(
            str(tmp_path / name)
            for name in ("writing-style-notes.md", ".mine", "a~bert~")
        ),
        str(tmp_path / "writing-model.ckpt-3.index"),
    ]
    folders = [tmp_path / "writing-prompts", pathlib.Path(f"{ended}.folder")]
    Folder.open(str(tmp_path)).claim()
    for folder in folders:
        folder.mkdir()
        stays.append(str(folder / "train.tsv"))
    for path in (*left, *stays):
        pathlib.Path(path).write_text("x")
    Folder.open(str(tmp_path)).clear()
    assert sorted(contents(tmp_path)) == sorted(
        str(pathlib.Path(path).relative_to(tmp_path)) for path in stays
    )


# --- Settings ------------------------------------------------------------------------


def test_run_goes_on_with_the_settings_it_began_with(tmp_path):
    folder = Folder.open(str(tmp_path))
    folder.note_settings({"seed": 1, "steps": 10, "text": "a" * 64})
    # Nothing was learned yet: the run may still begin otherwise.
    folder.note_settings({"seed": 2, "steps": 10, "text": "a" * 64})
    save(folder, 1)
    folder.note_settings({"seed": 2, "steps": 10, "text": "a" * 64})
    message = (
        "seed was 2 and is now 1; steps was 10 and is now 20; text has changed; choose"
    )
    with pytest.raises(UserError, match=message):
        folder.note_settings({"seed": 1, "steps": 20, "text": "b" * 64})


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
    folder = Folder.open(str(tmp_path))
    folder.note_settings(OTHERS[script])
    save(folder, 1)
    message = f"{tmp_path}: contains a run of {script}; choose another --output_dir"
    for other, settings in OTHERS.items():
        if other != script:
            with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
                folder.check_settings(settings)
    folder.check_settings(OTHERS[script])


def test_long_lists_of_changed_settings_are_counted(tmp_path):
    folder = Folder.open(str(tmp_path))
    folder.note_settings(PRETRAINING)
    save(folder, 1)
    for files, message in (
        (FILES[:1], r"input_file was 16 files and is now \[\['records-0.tf_record',"),
        (FILES[::-1], "settings: input_file has changed; choose"),
    ):
        with pytest.raises(UserError, match=message):
            folder.check_settings({"input_file": files, "seed": 1})


def test_what_was_not_noted_had_its_default(tmp_path):
    folder = Folder.open(str(tmp_path))
    folder.note_settings({"seed": 1})
    save(folder, 1)
    folder.check_settings({"seed": 1, "new": 5}, {"new": 5})
    with pytest.raises(UserError, match="new was 5 and is now 6"):
        folder.check_settings({"seed": 1, "new": 6}, {"new": 5})
    assert json.loads((tmp_path / "run.json").read_text()) == {"seed": 1}
    # Flags that are no settings of a run do not count, whatever their default is.
    folder.note_settings({"seed": 1, "new": 5}, {"new": 5, "xla": False})
    # From then on the run is held to it, whatever the default becomes.
    with pytest.raises(UserError, match="new was 5 and is now 6"):
        folder.check_settings({"seed": 1, "new": 6}, {"new": 6})
