"""run_classifier.py: what people call the labels, in its exports and other programs."""

import json

import pytest

from serving import export
from serving.predictor import Predictor
from tests import tiny
from tests.classifier import TINY, WORDS, custom, run
from tests.conversion import convert


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    return tmp_path


def converted(folder, source, target, layout):
    convert(folder / source, folder / target, layout=layout)
    return folder / target


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["single", "several"])
def test_names_of_labels_are_told_once(folder, untraced, capsys, monkeypatch, kind):
    """Files keep what the data has; people read the names, here and in other programs."""
    names = {"labels": ["0", "1"], "label_names": ["negative", "positive"]}
    values = {"single": ["0", "1", "1"], "several": [["0"], ["0", "1"], []]}[kind]
    files = custom(folder, "jsonl", values) | {"label_kind": kind}
    written = ("test_results.tsv", "predictions.jsonl", "eval_results.txt")
    output = folder / "output"
    everything = {"do_train": True, "do_eval": True, "do_predict": True}
    run(folder, "custom", **files, **everything)
    before = [(output / name).read_text() for name in written]
    assert "12 labelled positive" not in capsys.readouterr().out
    run(folder, "custom", **files, **everything, label_names=names["label_names"])
    assert [(output / name).read_text() for name in written] == before
    page = (output / "mistakes.html").read_text()
    assert "positive" in page and ">1<" not in page
    # The run knows them from here on, whether it trains or not.
    run(folder, "custom", **files, do_train=True, do_export=True)
    said = json.loads((output / "export" / "export.json").read_text())
    assert said | names == said
    (answer,) = Predictor(str(output / "export")).predict([{"text": "a cat"}], 1)
    assert list(answer["probabilities"]) == ["negative", "positive"]
    described = []
    monkeypatch.setattr(
        export, "save", lambda _, product, card: described.append(product.description)
    )
    run(folder, "custom", **files, do_predict=True, do_export=True)
    theirs = converted(folder, "output", "theirs", "hugging_face")
    said = json.loads((theirs / "config.json").read_text())
    assert said["id2label"] == {"0": "negative", "1": "positive"}
    assert said["label2id"] == {"negative": 0, "positive": 1}
    # They come back, from both layouts, for data that has numbers.
    converted(folder, "theirs", "released", "release")
    for source in ("theirs", "released"):
        place = {
            "init_checkpoint": str(folder / source),
            "output_dir": str(folder / f"of {source}"),
            "labels": ["0", "1"],
        }
        run(folder, "custom", **files, **place, do_predict=True, do_export=True)
        for name, content in zip(written[:2], before, strict=False):
            assert (folder / f"of {source}" / name).read_text() == content
    assert [{name: [*said[name]] for name in names} for said in described] == [
        names
    ] * 3
