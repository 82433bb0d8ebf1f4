"""--export_adapters: one export has the base of LoRA runs once, and each run's answers."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import predict
import run_classifier
from training.backend import tf
from training.storage import checkpoint
from errors import UserError
from serving.predictor import Predictor
from tests import classifier, family, jobs, tiny
from tests.serving.clients import PREDICT, send, serving

DEEP = dataclasses.replace(classifier.TINY, num_hidden_layers=2, hidden_size=64)
TEXTS = ["the cat sat", "", "a red dog ran under the blue mat"]
# Another kind of labels, another number of them, and another size of adapters each.
RUNS = {
    "one": ("single", ["x", "y"], {"lora_rank": 2, "lora_alpha": 6.0}),
    "two": ("several", ["p", "q", "r"], {"lora_rank": 3, "lora_targets": ["dense"]}),
    "three": ("number", [1.5, -2.0], {"lora_rank": 1, "max_seq_length": 16}),
}


def flags_of(folder, name, **changes):
    kind, _, own = RUNS[name]
    own = {"lora_rank": 1} | own if changes.get("do_train") else {}
    base = {"init_checkpoint": str(folder / "model.ckpt-best")}
    files = {f"{s}_file": f"{s}.tsv" for s in ("train", "dev", "test")}
    own |= {"max_seq_length": RUNS[name][2].get("max_seq_length", 32)}
    own |= {"task_name": "custom", "label_kind": kind, "learning_rate": [1e-2]}
    own |= {"data_dir": str(folder / f"{name}_data"), "output_dir": str(folder / name)}
    return jobs.flags(folder, **base | files | own | changes)


def run(folder, name, **changes):
    jobs.run(run_classifier, flags_of(folder, name, **changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, every_export_is_checked):
    """Three runs on one base, each exported alone."""
    folder = tmp_path_factory.mktemp("runs")
    tiny.write(folder, classifier.WORDS, DEEP)
    family.write_start(folder, DEEP)
    for name, (_, labels, _) in RUNS.items():
        (folder / f"{name}_data").mkdir()
        classifier.custom(folder / f"{name}_data", "tsv", labels)
        run(folder, name, do_train=True, do_export=True)
    return folder


def exported_together(folder, **changes):
    """An export of all of them by the first; what they answered alone."""
    alone = {name: Predictor(str(folder / name)) for name in RUNS}
    alone = {k: each.predict([{"text": t} for t in TEXTS]) for k, each in alone.items()}
    others = [str(folder / name) for name in RUNS if name != "one"]
    run(folder, "one", do_export=True, export_adapters=others, **changes)
    return alone


def sizes(folder):
    return [p.stat().st_size for p in folder.glob("export/*/1/variables/*.data*")]


@pytest.mark.slow
def test_each_run_answers_as_alone_and_the_base_is_there_once(folder, tmp_path, capsys):
    before = sum(sizes(folder / "one"))
    alone = exported_together(folder)
    together = Predictor(str(folder / "one"))
    assert list(together.adapters) == list(RUNS)
    for name, answers in alone.items():
        found = together.adapters[name].predict([{"text": text} for text in TEXTS])
        for one, other in zip(found, answers, strict=True):
            assert one["predicted"] == pytest.approx(other["predicted"], abs=1e-5)
            known = other.get("probabilities")
            assert one.get("probabilities") == pytest.approx(known, abs=1e-5)
    default = together.predict([{"text": TEXTS[0]}])
    assert default == together.adapters["one"].predict([{"text": TEXTS[0]}])
    assert sum(sizes(folder / "one")) < 1.2 * before
    # The networks are in tensors/1 under the same names.
    path = str(folder / "one" / "export" / "tensors" / "1")
    assert set(RUNS) < set(tf.saved_model.load(path).signatures)
