"""Files of strangers in a folder: planted, looked for afterwards, or in a script's way."""

import os
import pathlib
import re
import shutil
from collections.abc import Mapping

from training.storage.folder import FOUND, Folder

# Names that look like those that scripts write, and belong to nobody else in a folder.
NAMES = """
    notes.txt .hidden nohup.out x.tmp-123 x.tfrecord.tmp-99999999
    events.out.tfevents.1.mine writing-style-notes.md writing-prompts/data/train.tsv
    writing-export/mine.txt replaced-export/mine.txt .export/mine.txt model.ckpt-3.meta
    export.json origin.json settings.json corpus.json plan.pairs lock ended.json
""".split()
# Names that trainings write: they do not begin where these are.
OF_RUNS = """
    run.json task.json text.json bert_config.json metrics.jsonl curves.png
    evaluations.json eval_results.txt eval_results.json mistakes.html outcome.json
    search.json skipped_batch.npz predictions.jsonl predictions.json train.tf_record
    eval.tf_record predict.tf_record test_results.tsv SST-2.tsv vocab.txt
""".split()


def plant(folder: pathlib.Path, names=NAMES, guise="file") -> None:
    """Puts a stranger's files where nothing is."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        if os.path.lexists(path):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = f"my own {name}\n"
        if guise == "folder":
            path.mkdir()
            (path / "mine.txt").write_text(content)
        elif guise == "link":
            (elsewhere / path.name).write_text(content)
            path.symlink_to(elsewhere / path.name)
        else:
            path.write_text(content)


def contents(root: pathlib.Path) -> dict[str, object]:
    """Bytes of each file, target of each link, None of each folder."""
    found = {}
    for folder, folders, names in os.walk(root):
        for path in (pathlib.Path(folder, name) for name in (*folders, *names)):
            if path.is_symlink():
                content = os.readlink(path)
            else:
                content = None if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(root))] = content
    return found


def check_still_there(strangers: Mapping, after: Mapping):
    """Everything is as it was, under its name."""
    changed = sorted(
        path for path in strangers if after.get(path, b"") != strangers[path]
    )
    assert not changed


def check_untouched(before: Mapping, after: Mapping):
    """Nothing changed; the rows of a set are no loss when they were made for nothing."""
    check_still_there(before, after)
    new = (path for path in after.keys() - before if after[path] is not None)
    ours = rf"(.*/)?({re.escape(FOUND)}|[a-z]+\.tf_record(\.json)?)"
    assert not [path for path in new if not re.fullmatch(ours, path)]


# --- What a case needs before the script is run: called with root and an ExitStack ---


def nothing(root, stack):
    del root, stack


def no(name):
    return lambda root, stack: (root / "given" / name).unlink()


def damaged(root, stack):
    """Half of the checkpoint to start from is missing."""
    (data,) = (root / "given" / "start").glob("*.data-*")
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])


def held(root, stack):
    stack.enter_context(Folder.open(str(root / "output")).hold(print))


def planted(*names, guise="file"):
    return lambda root, stack: plant(root / "output", names, guise)


def killed(root, stack):
    """The last checkpoint was never written."""
    for path in (root / "output").glob("model.ckpt-6.*"):
        path.unlink()


def linked(root, stack):
    """Of what the run wrote, the user keeps some elsewhere."""
    for name in ("metrics.jsonl", "task.json"):
        (root / "output" / name).unlink()
        plant(root / "output", [name], guise="link")


def export_of_somebody(root, stack):
    shutil.rmtree(root / "output" / "export", ignore_errors=True)
    plant(root / "output", ["export/mine.txt"])


def model_of_somebody(root, stack):
    """As a release leaves its model, and what it wrote of it."""
    shutil.copytree(root / "given" / "start", root / "output", dirs_exist_ok=True)
    for name in (FOUND, "run.json"):
        (root / "output" / name).unlink()


def emptied(root, stack):
    (root / "given" / "text.txt").write_text("")
