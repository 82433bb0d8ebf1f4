"""Files of strangers in a folder: planted, looked for afterwards, or in a script's way."""

import os
import pathlib
import re
import shutil
from collections.abc import Mapping

import numpy as np

from training.storage import checkpoint, lease, run_folder

TRIALS = [f"rate{rate}-batch8-epochs1.0-seed12345" for rate in (0.001, 0.0001)]

# As names that scripts write, and as names that look like those.
NAMES = """
    notes.txt .hidden x.tmp-123 x.tfrecord.tmp-99999999 events.out.tfevents.1.mine
    writing-style-notes.md writing-prompts/data/train.tsv writing-export/mine.txt
    replaced-export/mine.txt .export/mine.txt model.ckpt-999.data-00000-of-00001
    model.ckpt-3.meta run.json task.json text.json bert_config.json vocab.txt checkpoint
    metrics.jsonl curves.png evaluations.json eval_results.txt eval_results.json
    mistakes.html outcome.json search.json skipped_batch.npz
    predictions.jsonl predictions.json nbest_predictions.json null_odds.json
    train.tf_record eval.tf_record predict.tf_record predict.tf_record.json
    test_results.tsv SST-2.tsv test_predictions.txt test_entities.json
    export.json origin.json settings.json corpus.json plan.pairs lock ended.json
""".split()
CONTENTS = {
    "run.json": '{"distance": "10 km"}',
    "task.json": '["clean the kitchen"]',
    "outcome.json": '["a draw"]',
    "evaluations.json": '{"restaurant": 5}',
    "metrics.jsonl": '{"step": 99, "kind": "dance"}\nnot JSON\n[1]\n',
    "checkpoint": 'model_checkpoint_path: "model.ckpt-12"\n'
    'all_model_checkpoint_paths: "model.ckpt-12"\n',
}
FOLDERS = ("", "best", "eval", "export", "runs")
FOLDERS += tuple(f"runs/{t}/{n}" for t in TRIALS for n in ("", "best"))


def plant(folder: pathlib.Path, names=NAMES, guise="file") -> None:
    """Puts a stranger's files where nothing is."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(parents=True, exist_ok=True)
    for name in names:
        path = folder / name
        if os.path.lexists(path):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = CONTENTS.get(path.name, f"my own {name}\n")
        if guise == "folder":
            path.mkdir()
            (path / "mine.txt").write_text(content)
        elif guise in ("link", "link to nothing"):
            if guise == "link":
                (elsewhere / path.name).write_text(content)
            path.symlink_to(elsewhere / path.name)
        else:
            path.write_text(content)


def plant_everywhere(folder: pathlib.Path, guise="file") -> None:
    for place in FOLDERS:
        plant(folder / place, guise=guise)
        (folder / place / "empty").mkdir()
    for place in ("best", *(f for f in FOLDERS if f.endswith("/best"))):
        put_checkpoint(folder / place, 12)


def put_checkpoint(folder: pathlib.Path, step: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"mine": np.full(3, step, np.float32)}
    checkpoint.write_bundle(str(folder / f"model.ckpt-{step}"), tensors)


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


def check_kept(strangers: Mapping, after: Mapping, said: str, root: pathlib.Path):
    """Everything is there; what has another name had to make room, and was named."""
    for path, content in strangers.items():
        if path in after and after[path] == content:
            continue
        places = [
            other
            for other in after
            if re.sub(r"\.kept-\d+", "", other) == path and after[other] == content
        ]
        assert places, f"lost: {path}"
        kept = re.match(r".*?\.kept-\d+", places[0])[0]
        assert f"renamed to {root / kept}\n" in said, f"not a word about {path}"
        has_taken = re.sub(r"\.kept-\d+$", "", kept)
        # What the worse runs of a search wrote is dropped again.
        assert has_taken in after or "/runs/" in kept, f"renamed for nothing: {path}"


def check_untouched(before: Mapping, after: Mapping):
    """Nothing changed; the rows of a set are no loss when they were made for nothing."""
    changed = sorted(path for path in before if after.get(path, b"") != before[path])
    assert not changed
    new = (path for path in after.keys() - before if after[path] is not None)
    ours = rf"(.*/)?({re.escape(run_folder.RECORD)}|[a-z]+\.tf_record(\.json)?)"
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
    stack.enter_context(lease.held(str(root / "output"), print))


def planted(*names, guise="file"):
    return lambda root, stack: plant(root / "output", names, guise)


def killed(root, stack):
    """The last checkpoint was never written."""
    for path in (root / "output").glob("model.ckpt-6.*"):
        path.unlink()


def linked(root, stack):
    """Of what the run wrote, the user keeps some elsewhere."""
    for name in ("vocab.txt", "bert_config.json", "metrics.jsonl", "task.json"):
        (root / "output" / name).unlink()
        plant(root / "output", [name], guise="link")


def emptier(root, stack):
    """Of the strangers in the export, only an empty folder is left."""
    export = root / "output" / "export"
    made = {"text", "tensors", "export.json", "empty"}
    for path in {path for path in export.iterdir() if path.name not in made}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def emptied(root, stack):
    (root / "given" / "text.txt").write_text("")


def foreign_checkpoint(root, stack):
    put_checkpoint(root / "output", 5)


def only(*names, guise="file"):
    """No other strangers than these."""

    def replace(root, stack):
        for path in sorted((root / "output").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        plant(root / "output", names, guise)

    return replace
