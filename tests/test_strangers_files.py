"""No file or folder that this program did not make is ever removed or overwritten.

A stranger's files are put wherever a script writes, and the script is run. After a good
run each is still there, byte for byte: under its name or, where the script has to write
that name itself, renamed to `<name>.kept-<n>`, with a line about it. A refused run leaves
everything as it was.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pytest

import build_vocab
import collect_documentation
import convert_checkpoint
import create_pretraining_data
import demo
import extract_features
import fill_mask
import inspect_records
import predict
import run_ablations
import run_classifier
import run_ner
import run_pretraining
import run_squad
import run_swag
import tests
from training import checkpoint, lease, run_folder
from serving import export
from tests import (
    exports,
    ner,
    squad,
    swag,
    test_run_pretraining,
    tiny,
)
from text.corpus import documentation
from text.errors import UserError
from text.generation import stages

GOLDEN = tests.GOLDEN
RELEASED = {
    "init_checkpoint": str(GOLDEN / "checkpoint" / "bert_model.ckpt"),
    "vocab_file": str(GOLDEN / "checkpoint" / "vocab.txt"),
}
TRIALS = [f"rate{rate}-batch8-epochs1.0-seed12345" for rate in (0.001, 0.0001)]

# --- The strangers -------------------------------------------------------------------

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
        elif guise == "link":
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


# --- Before and after ----------------------------------------------------------------


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


# --- What scripts are given: the files, in root/given, and the flags ------------------


def of_classifier(given):
    lines = [f"{'ab'[i % 2]} c\t{i % 2}" for i in range(16)]
    for name in ("train", "dev"):
        (given / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
    lines = [f"{i}\ta b c" for i in range(4)]
    (given / "test.tsv").write_text("\n".join(["index\tsentence", *lines, ""]))
    tiny.write(given, "abc", tiny.config())
    return of_task(given) | {"task_name": "SST-2", "data_dir": str(given)}


def of_task(given):
    return {
        "vocab_file": str(given / "vocab.txt"),
        "bert_config_file": str(given / "config.json"),
        "max_seq_length": 16,
        "train_batch_size": [8],
        "num_train_epochs": [1.0],
        "learning_rate": [1e-3],
    }


def of_squad(given):
    tiny.write(given, squad.WORDS, squad.TINY)
    for name, number in (("train", 16), ("dev", 4)):
        questions = squad.shining(number, 1, impossible=True)
        (given / f"{name}.json").write_text(json.dumps(questions))
    return squad.flags(given) | {"version_2_with_negative": True}


def of_swag(given):
    tiny.write(given, swag.WORDS, swag.TINY)
    for name, labelled in (("train", True), ("val", True), ("test", False)):
        lines = swag.swag_lines(16, 1, labelled)
        swag.write_csv(given / f"{name}.csv", lines)
    return swag.flags(given)


def of_ner(given):
    tiny.write(given, ner.PIECES, ner.TINY)
    for name in ("train", "dev", "test"):
        (given / f"{name}.txt").write_text(ner.conll(16, 1))
    return ner.flags(given)


def of_ner_features(given):
    flags = of_ner(given)
    (given / "config.json").write_text(ner.DEEP.to_json_string())
    ner.save_encoder(given, ner.DEEP)
    return flags | {
        "features": "concat_last_four",
        "init_checkpoint": str(given / "encoder"),
    }


def of_pretraining(given):
    return test_run_pretraining.flags(given) | {
        "eval_input_file": [test_run_pretraining.RECORDS],
        "max_eval_steps": 2,
        "vocab_file": RELEASED["vocab_file"],
    }


def of_records(given):
    text = "the first one.\nthe second is here.\n\nanother has two.\nthis is it.\n" * 9
    (given / "text.txt").write_text(text)
    return {
        "input_file": [str(given / "text.txt")],
        "vocab_file": RELEASED["vocab_file"],
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "num_workers": 1,
    }


def of_vocabulary(given):
    (given / "text.txt").write_text("low lower lowest, new newer newest\n" * 20)
    return {"input_file": [str(given / "text.txt")], "vocab_size": 130, "num_unused": 2}


def of_inspection(given):
    create_pretraining_data.main(
        create_pretraining_data.Options(
            **of_records(given)
            | {"output_file": [str(given / "records")], "overwrite": True}
        )
    )
    return {
        "input_file": [str(given / "records")],
        "vocab_file": RELEASED["vocab_file"],
    }


def of_features(given):
    (given / "text.txt").write_text("the first\nthe second\n")
    return {
        **RELEASED,
        "input_file": str(given / "text.txt"),
        "bert_config_file": str(GOLDEN / "checkpoint" / "bert_config.json"),
        "layers": [-1],
        "max_seq_length": 16,
    }


def of_questions(given):
    (given / "text.txt").write_text("a good day\n")
    return {
        "model_dir": exports.write(given / "model", "label"),
        "input_file": str(given / "text.txt"),
    }


def of_documentation(given):
    sentence = "Returns number {} of the words that are in this fine module of {}."
    for number in range(8):
        for package in ("one", "two"):
            some = (sentence.format(10 * number + i, package) for i in range(9))
            path = given / package / f"module{number}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'"""{" ".join(some)}"""\n')
    return {"held_out_every": 2, "package_sentences": 2, "package_dev_sentences": 2}


def of_nothing(given):
    return {}


# --- What a case needs before the script is run: called with root and an ExitStack ----


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


def only(*names):
    """No other strangers than these."""

    def replace(root, stack):
        for path in sorted((root / "output").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        plant(root / "output", names)

    return replace


# --- The table -----------------------------------------------------------------------


class Case(NamedTuple):
    """One run of a script.

    Attributes:
        flags: besides those of the script's files; ROOT in them is the test's folder.
        refusal: what the one line has to say; None for a good run.
        before: flags of an earlier good run, before strangers come; None for no such run.
        arrange: what else is to be done before the run.
        guise: what strangers are: files, or folders or links of these names.
    """

    script: str
    flags: dict
    refusal: str | None = None
    before: dict | None = None
    arrange: Callable = nothing
    guise: str = "file"


SCRIPTS = {
    "classifier": (run_classifier, of_classifier),
    "squad": (run_squad, of_squad),
    "swag": (run_swag, of_swag),
    "ner": (run_ner, of_ner),
    "ner_features": (run_ner, of_ner_features),
    "pretraining": (run_pretraining, of_pretraining),
    "records": (create_pretraining_data, of_records),
    "vocabulary": (build_vocab, of_vocabulary),
    "inspection": (inspect_records, of_inspection),
    "features": (extract_features, of_features),
    "questions": (predict, of_questions),
    "masks": (fill_mask, of_nothing),
    "conversion": (convert_checkpoint, of_nothing),
    "documentation": (collect_documentation, of_documentation),
    "demo": (demo, of_nothing),
    "ablations": (run_ablations, of_nothing),
}
OUT = {"output_dir": "ROOT/output"}
TRAIN = OUT | {"do_train": True}
ALL = TRAIN | {"do_eval": True, "do_predict": True}
EVALUATE = OUT | {"do_eval": True}
PREDICT = OUT | {"do_predict": True}
EXPORT = OUT | {"do_export": True}
PRETRAIN = TRAIN | {"do_eval": True, "eval_every_steps": 4}
STOPPING = {"early_stopping_patience": 2, "eval_every_steps": 1}
STEPS = {"save_checkpoints_steps": 1, "keep_checkpoint_max": 1}
START = {"output_dir": "ROOT/given/start", "save_checkpoints_steps": 9}
DAMAGED = {"init_checkpoint": "ROOT/given/start"}

TRAININGS = {
    "train": Case("classifier", ALL | STEPS),
    "train among folders": Case("classifier", ALL, guise="folder"),
    "train among links": Case("classifier", ALL, guise="link"),
    "search": Case("classifier", ALL | {"learning_rate": [1e-3, 1e-4]}),
    "stop early": Case("classifier", ALL | STOPPING | STEPS),
    "squad": Case("squad", ALL),
    "swag": Case("swag", ALL),
    "ner": Case("ner", ALL),
    "ner, features": Case("ner_features", ALL | {"lstm_size": 4}),
    "pre-train": Case("pretraining", PRETRAIN),
    "resume": Case("pretraining", PRETRAIN, before=PRETRAIN, arrange=killed),
    "ours are links now": Case("classifier", ALL, before=TRAIN, arrange=linked),
    "evaluate": Case("classifier", EVALUATE, before=TRAIN),
    "predict": Case("classifier", PREDICT, before=TRAIN),
    "export": Case("classifier", EXPORT, before=TRAIN),
    "export again": Case("classifier", EXPORT, before=EXPORT | TRAIN, arrange=emptier),
}
REFUSED_TRAININGS = {
    "no data": Case("classifier", ALL, "dev.tsv", arrange=no("dev.tsv")),
    "no batch": Case("classifier", ALL | {"train_batch_size": [64]}, "lower it"),
    "damaged": Case("classifier", ALL | DAMAGED, "is damaged", TRAIN | START, damaged),
    "search, damaged": Case(
        "classifier",
        ALL | DAMAGED | {"learning_rate": [1e-3, 1e-4]},
        "is damaged",
        TRAIN | START,
        damaged,
    ),
    "in use": Case("classifier", ALL, "in use by", arrange=held),
    "other settings": Case(
        "classifier", TRAIN | {"seed": 1}, "began with other settings", before=TRAIN
    ),
    "nothing to evaluate": Case("classifier", EVALUATE, "contains no checkpoint"),
    "another's checkpoint": Case(
        "classifier", TRAIN, "began with other settings", arrange=foreign_checkpoint
    ),
    "another's export": Case(
        "classifier",
        EXPORT,
        "exists and is not an export; move it",
        TRAIN,
        only("export/mine.txt"),
    ),
    "squad": Case("squad", ALL, "dev.json", arrange=no("dev.json")),
    "swag": Case("swag", ALL, "test.csv", arrange=no("test.csv")),
    "ner": Case("ner", ALL, "test.txt", arrange=no("test.txt")),
    "pre-train without records": Case(
        "pretraining", PRETRAIN | {"input_file": ["ROOT/given/none"]}, "no file matches"
    ),
    "pre-train, damaged": Case(
        "pretraining", PRETRAIN | DAMAGED, "is damaged", TRAIN | START, damaged
    ),
    "pre-train, in use": Case("pretraining", PRETRAIN, "in use by", arrange=held),
    "pre-train, other settings": Case(
        "pretraining",
        PRETRAIN | {"num_train_steps": 7},
        "began with other settings",
        before=PRETRAIN,
    ),
}


def end(script, **flags):
    raise UserError("the end")


@pytest.fixture(autouse=True)
def small_and_fast(monkeypatch, tmp_path, untraced):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(demo, "_run", end)  # it takes minutes
    # It loads the export in another process, and writes nothing there.
    monkeypatch.setattr(export, "_check", lambda *given: None)
    packages = tmp_path / "given"
    monkeypatch.setattr(
        documentation,
        "source_files",
        lambda: sorted((p.parent.name, str(p)) for p in packages.glob("*/*.py")),
    )


def prepared(script: str, root: pathlib.Path) -> Callable:
    """Makes the files that a script is given; what then runs it, with more flags."""
    module, give = SCRIPTS[script]
    for name in ("given", "output"):
        (root / name).mkdir(exist_ok=True)
    given = give(root / "given")

    def run(flags):
        flags = json.loads(json.dumps(flags).replace("ROOT", str(root)))
        module.main(module.Options(**given | flags))

    return run


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Maps a script and flags to a folder after that run, the same for all cases."""
    made = {}

    def folder_after(script, flags):
        key = script, json.dumps(flags)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("earlier")
            prepared(script, made[key])(flags)
        return made[key]

    return folder_after


def try_case(case: Case, root: pathlib.Path, capsys, earlier, named=()) -> None:
    if case.before is not None:
        shutil.copytree(earlier(case.script, case.before), root, dirs_exist_ok=True)
    run = prepared(case.script, root)
    ours = contents(root)
    plant_everywhere(root / "output", case.guise)
    with contextlib.ExitStack() as stack:
        case.arrange(root, stack)
        before = contents(root)
        capsys.readouterr()
        if case.refusal is None:
            run(case.flags)
            said = capsys.readouterr().err
            known = ours.keys() | set(named)
            strangers = {p: c for p, c in before.items() if p not in known}
            check_kept(strangers, contents(root), said, root)
        else:
            with pytest.raises((UserError, OSError), match=case.refusal) as raised:
                run(case.flags)
            assert "\n" not in str(raised.value)
            check_untouched(before, contents(root))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_training(name, tmp_path, capsys, earlier):
    try_case(TRAININGS[name], tmp_path, capsys, earlier)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED_TRAININGS)
def test_refused_training(name, tmp_path, capsys, earlier):
    try_case(REFUSED_TRAININGS[name], tmp_path, capsys, earlier)


# --- What makes files, rather than runs ----------------------------------------------

MADE = "ROOT/output/made"
FILE, FILES, FOLDER = (
    {"output_file": MADE},
    {"output_file": [MADE]},
    {"output_dir": MADE},
)
REPORT = {"report_file": MADE}
HDF5 = {"output_format": "hdf5", "pooling": "mean"}
CONVERT = {"input": [RELEASED["init_checkpoint"]], "layout": "release"}
TO_HUGGING_FACE = CONVERT | {"layout": "hugging_face"}
PROSE = FILE | {"held_out_file": "ROOT/output/held"}
PACKAGES = PROSE | {"package_dir": "ROOT/output"}
EXISTS = planted("made", "held", "made.description.json")

JOBS = {
    "records": Case("records", FILES),
    "records again": Case("records", FILES | {"overwrite": True}, before=FILES),
    "vocabulary": Case("vocabulary", FILE, arrange=EXISTS),
    "inspection": Case("inspection", REPORT, arrange=EXISTS),
    "features": Case("features", FILE, arrange=EXISTS),
    "features as HDF5": Case("features", FILE | HDF5, arrange=EXISTS),
    "answers": Case("questions", FILE, arrange=EXISTS),
    "masks": Case("masks", RELEASED | {"text": "the [MASK]"}),
    "conversion": Case("conversion", CONVERT | FOLDER),
    "conversion to another layout": Case("conversion", TO_HUGGING_FACE | FOLDER),
    "documentation": Case(
        "documentation",
        PACKAGES,
        arrange=planted("made", "held", "train.tsv", "dev.tsv"),
    ),
}
NAMED = ("output/made", "output/held")  # in the flags: what is there is to be replaced

REFUSED_JOBS = {
    "records exist": Case("records", FILES, "already exists", arrange=planted("made")),
    "records' description exists": Case(
        "records", FILES, "already exists", arrange=planted("made.description.json")
    ),
    "records without text": Case(
        "records", FILES | {"overwrite": True}, "contains a token", FILES, emptied
    ),
    "records are a folder": Case(
        "records", FILES, "is a folder", arrange=planted("made", guise="folder")
    ),
    "no words": Case("vocabulary", FILE, "no words", FILE, emptied),
    "vocabulary is a folder": Case(
        "vocabulary", FILE, "must name a file", arrange=planted("made", guise="folder")
    ),
    "damaged records": Case("inspection", REPORT, "records", REPORT, no("records")),
    "no texts": Case("features", FILE, "contains no text", FILE, emptied),
    "bad rows": Case(
        "questions", FILE | {"input_format": "jsonl"}, "text.txt", FILE, EXISTS
    ),
    "conversion among files": Case("conversion", CONVERT | OUT, "is not empty"),
    "conversion in a file's place": Case(
        "conversion", CONVERT | FOLDER, "made", arrange=planted("made")
    ),
    "few packages": Case(
        "documentation",
        PACKAGES | {"package_sentences": 999},
        "at least 2 are needed",
        arrange=EXISTS,
    ),
    "demo": Case("demo", OUT, "did not make", arrange=planted("full/notes.txt")),
    "ablations": Case("ablations", {"table": ["5"]} | OUT, "did not make"),
}
for _name in (
    "notes.txt",
    "lock",
    "ended.json",
    "origin.json",
    "corpus.json",
    "a/b.txt",
):
    REFUSED_JOBS[f"work folder with {_name}"] = Case(
        "records",
        FILES,
        "but contains something else",
        arrange=planted(f"made.work/{_name}"),
    )
REFUSED_JOBS["work folder is a file"] = Case(
    "records", FILES, "but contains something else", arrange=planted("made.work")
)


@pytest.mark.parametrize("name", JOBS)
def test_job(name, tmp_path, capsys, earlier):
    try_case(JOBS[name], tmp_path, capsys, earlier, NAMED)


@pytest.mark.parametrize("name", REFUSED_JOBS)
def test_refused_job(name, tmp_path, capsys, earlier):
    try_case(REFUSED_JOBS[name], tmp_path, capsys, earlier)


def test_strangers_in_unfinished_work(tmp_path, monkeypatch, capsys):
    names = {"notes.txt", "lock", "ended.json", "a/b.txt", "rows.txt", "train.tsv"}
    flags = of_records(tmp_path) | {"output_file": [str(tmp_path / "made")]}
    options = create_pretraining_data.Options(**flags)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stages, "_write_all", interrupt)
        create_pretraining_data.main(options)
    plant(tmp_path / "made.work", names)
    create_pretraining_data.main(options)
    assert contents(tmp_path / "made.work").keys() == names | {"a"}
    assert "made.work: not removed, because it contains" in capsys.readouterr().err


def interrupt(*given):
    raise KeyboardInterrupt


def test_strangers_in_the_folder_of_a_demo(tmp_path):
    """Its own folder it takes up again, whatever else is in it by then."""
    for _ in range(2):
        with pytest.raises(UserError, match="the end"):
            demo.main(demo.Options(output_dir=str(tmp_path)))
        plant(tmp_path / "full", ["notes.txt"])
