"""No file or folder that this program did not make is ever removed or overwritten.

A stranger's files are put where a script writes, and the script is run. Afterwards each is
still there, byte for byte. Where the script would have to write one of them, it is refused,
which leaves everything as it was.
"""

import contextlib
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest

import build_vocab
import convert_checkpoint
import create_pretraining_data
import extract_features
import fill_mask
import inspect_records
import predict
import run_classifier
import run_pretraining
import run_swag
from errors import UserError
from serving import export
from tests import tiers
from tests.given import (
    RELEASED,
    of_classifier,
    of_features,
    of_inspection,
    of_nothing,
    of_pretraining,
    of_questions,
    of_records,
    of_swag,
    of_vocabulary,
)
from tests.strangers import (
    NAMES,
    OF_RUNS,
    check_still_there,
    check_untouched,
    contents,
    damaged,
    emptied,
    export_of_somebody,
    held,
    killed,
    linked,
    model_of_somebody,
    no,
    nothing,
    plant,
    planted,
)
from text.generation import stages


class Case(NamedTuple):
    """One run of a script.

    Attributes:
        flags: besides those of the script's files; ROOT in them is the test's folder.
        refusal: what the one line has to say; None for a good run.
        before: flags of an earlier good run, before strangers come; None for no such run.
        arrange: what else is to be done before the run.
        strangers: names of the files that are planted in output_dir.
    """

    script: str
    flags: dict
    refusal: str | None = None
    before: dict | None = None
    arrange: Callable = nothing
    strangers: tuple[str, ...] = tuple(NAMES)


SCRIPTS = {
    "classifier": (run_classifier, of_classifier),
    "swag": (run_swag, of_swag),
    "pretraining": (run_pretraining, of_pretraining),
    "records": (create_pretraining_data, of_records),
    "vocabulary": (build_vocab, of_vocabulary),
    "inspection": (inspect_records, of_inspection),
    "features": (extract_features, of_features),
    "questions": (predict, of_questions),
    "masks": (fill_mask, of_nothing),
    "conversion": (convert_checkpoint, of_nothing),
}
OUT = {"output_dir": "ROOT/output"}
TRAIN = OUT | {"do_train": True}
ALL = TRAIN | {"do_eval": True, "do_predict": True}
EXPORT = OUT | {"do_export": True}
PRETRAIN = TRAIN | {"do_eval": True, "eval_every_steps": 4}
STOPPING = {"early_stopping_patience": 2, "eval_every_steps": 1}
STEPS = {"save_checkpoints_steps": 1, "keep_checkpoint_max": 1}
START = {"output_dir": "ROOT/given/start", "save_checkpoints_steps": 9}
DAMAGED = {"init_checkpoint": "ROOT/given/start"}
EVALUATE = OUT | {"do_eval": True}

TRAININGS = {
    "train": Case("classifier", ALL | STEPS),
    "search": Case("classifier", ALL | {"learning_rate": [1e-3, 1e-4]}),
    "stop early": Case("classifier", ALL | STOPPING | STEPS),
    "pre-train": Case("pretraining", PRETRAIN),
    "resume": Case("pretraining", PRETRAIN, before=PRETRAIN, arrange=killed),
    "export again": Case("classifier", EXPORT, before=EXPORT | TRAIN),
    "evaluate another's model": Case(
        "classifier", EVALUATE, before=TRAIN | START, arrange=model_of_somebody
    ),
}
NOT_OURS = "this program did not write it"
REFUSED_TRAININGS = {
    "no data": Case("classifier", ALL, "dev.tsv", arrange=no("dev.tsv")),
    "damaged": Case("classifier", ALL | DAMAGED, "is damaged", TRAIN | START, damaged),
    "in use": Case("classifier", ALL, "in use by", arrange=held),
    "names of ours": Case("classifier", ALL, NOT_OURS, strangers=tuple(OF_RUNS)),
    "another's rows": Case("classifier", ALL, NOT_OURS, strangers=("eval.tf_record",)),
    "ours are links now": Case("classifier", ALL, NOT_OURS, TRAIN, linked),
    "another's results": Case(
        "classifier",
        EVALUATE,
        NOT_OURS,
        TRAIN | START,
        model_of_somebody,
        ("eval_results.txt",),
    ),
    "another's model": Case(
        "classifier",
        TRAIN,
        "are not of a run in this folder",
        TRAIN | START,
        model_of_somebody,
    ),
    "another's export": Case(
        "classifier",
        EXPORT,
        "mine.txt: is not part of an export",
        TRAIN | EXPORT,
        export_of_somebody,
    ),
}


@pytest.fixture(autouse=True)
def small_and_fast(monkeypatch, untraced, no_fsync):
    # It loads the export in another process, and writes nothing there.
    monkeypatch.setattr(export, "_check", lambda *given: None)


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


def try_case(case: Case, root: pathlib.Path, earlier, named=()) -> None:
    if case.before is not None:
        shutil.copytree(earlier(case.script, case.before), root, dirs_exist_ok=True)
    run = prepared(case.script, root)
    ours = contents(root)
    plant(root / "output", case.strangers)
    with contextlib.ExitStack() as stack:
        case.arrange(root, stack)
        before = contents(root)
        if case.refusal is None:
            run(case.flags)
            known = ours.keys() | set(named)
            strangers = {p: c for p, c in before.items() if p not in known}
            check_still_there(strangers, contents(root))
        else:
            with pytest.raises((UserError, OSError), match=case.refusal):
                run(case.flags)
            check_untouched(before, contents(root))


@pytest.mark.parametrize("name", tiers.cases(TRAININGS, ["train", "pre-train"]))
def test_training(name, tmp_path, earlier):
    try_case(TRAININGS[name], tmp_path, earlier)


@pytest.mark.parametrize("name", REFUSED_TRAININGS)
def test_refused_training(name, tmp_path, earlier):
    try_case(REFUSED_TRAININGS[name], tmp_path, earlier)


@pytest.mark.parametrize(
    ("script", "before"),
    [
        ("pretraining", "classifier"),
        ("classifier", "pretraining"),
        ("swag", "classifier"),
    ],
)
def test_a_run_of_another_script_is_refused(script, before, tmp_path, earlier):
    output = tmp_path / "output"
    shutil.copytree(earlier(before, TRAIN) / "output", output)
    run = prepared(script, tmp_path)
    with pytest.raises(UserError) as raised:
        run(TRAIN)
    name = {"classifier": "the task Classifier"}.get(before, f"run_{before}.py")
    message = f"{output}: contains a run of {name}; choose another --output_dir"
    assert str(raised.value) == message


# --- What makes files, rather than runs ----------------------------------------------

MADE = "ROOT/output/made"
FILE, FILES, FOLDER = (
    {"output_file": MADE},
    {"output_file": [MADE]},
    {"output_dir": MADE},
)
REPORT = {"report_file": MADE}
CONVERT = {"input": [RELEASED["init_checkpoint"]], "layout": "release"}
EXISTS = planted("made", "held", "made.description.json")

JOBS = {
    "records": Case("records", FILES),
    "records again": Case("records", FILES | {"overwrite": True}, before=FILES),
    "vocabulary": Case("vocabulary", FILE, arrange=EXISTS),
    "inspection": Case("inspection", REPORT, arrange=EXISTS),
    "features": Case("features", FILE, arrange=EXISTS),
    "answers": Case("questions", FILE, arrange=EXISTS),
    "masks": Case("masks", RELEASED | {"text": "the [MASK]"}),
    "conversion": Case("conversion", CONVERT | FOLDER),
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
}
for _name in ("ended.json", "a/b.txt"):
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
def test_job(name, tmp_path, earlier):
    try_case(JOBS[name], tmp_path, earlier, NAMED)


@pytest.mark.parametrize("name", REFUSED_JOBS)
def test_refused_job(name, tmp_path, earlier):
    try_case(REFUSED_JOBS[name], tmp_path, earlier)


def test_strangers_in_unfinished_work(tmp_path, monkeypatch, capsys):
    names = {"notes.txt", "lock", "ended.json", "a/b.txt", "rows.txt", "train.tsv"}
    flags = of_records(tmp_path) | {"output_file": [str(tmp_path / "made")]}
    options = create_pretraining_data.Options(**flags)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stages, "write_all", interrupt)
        create_pretraining_data.main(options)
    plant(tmp_path / "made.work", names)
    create_pretraining_data.main(options)
    assert contents(tmp_path / "made.work").keys() == names | {"a"}
    assert "made.work: not removed, because it contains" in capsys.readouterr().err


def interrupt(*given):
    raise KeyboardInterrupt
