"""The card beside a converted or exported model, and where both are uploaded."""

import json
import re
import shutil

import huggingface_hub
import pytest

from errors import UserError
from serving.predictor import Predictor
from tests import tiny
from tests.classifier import TINY, WORDS, custom, run
from tests.conversion import CLASSIFIER, convert, made
from tests.files.test_hub import server  # noqa: F401
from training.interchange.vector_settings import VectorSettings

# huggingface_hub's own, while it uploads.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content:DeprecationWarning")

SETTINGS = {
    "init_checkpoint": "hf://klue/bert-base@main",
    "learning_rate": 3e-05,
    "training_examples": "5ad8",
    "vocab_sha256": "8ea7",
}
TASK = {
    "task": "Classifier",
    "script": "run_classifier.py",
    "flags": {"task_name": "nsmc", "data_dir": "my/nsmc"},
    "labels": ["0", "1"],
}


@pytest.fixture
def trained(tmp_path):
    """The folder of a fine-tuned model."""
    folder = tmp_path / "trained"
    made(folder, CLASSIFIER)
    for name, content in (
        ("run.json", SETTINGS),
        ("task.json", TASK),
        ("eval_results.json", {"eval_accuracy": 0.875, "global_step": 7, "loss": 0.1}),
    ):
        (folder / name).write_text(json.dumps(content))
    return folder


def convert_and_push(folder, output, layout="hugging_face", **flags):
    convert(folder, output, layout=layout, **flags)


def test_hubs_read_the_head_of_the_card(tmp_path, trained):
    convert_and_push(trained, tmp_path / "out")
    card = huggingface_hub.ModelCard.load(tmp_path / "out" / "README.md")
    head = card.data.to_dict()
    assert head["base_model"] == "klue/bert-base"
    assert head["pipeline_tag"] == "text-classification"
    assert "license" not in head  # its owner's to choose
    (result,) = card.data.eval_results
    assert (result.dataset_name, result.metric_type) == ("nsmc", "accuracy")
    assert result.metric_value == 0.875
    for line in (
        "| score | held-out data |",
        "| eval_accuracy | 0.875 |",
        "- `--data_dir=nsmc`",
        "- `learning_rate`: 3e-05",
        "[klue/bert-base](https://huggingface.co/klue/bert-base)",
    ):
        assert line in card.content
    text = (tmp_path / "out" / "README.md").read_text()
    assert (
        "from transformers import AutoTokenizer, BertForSequenceClassification" in text
    )
    assert "\n# license: name one here, such as apache-2.0\n" in text
    assert "sha256" not in card.content


def test_a_card_tells_no_paths_of_this_machine(tmp_path, trained):
    settings = SETTINGS | {"init_checkpoint": "/home/me/secret/pretraining/"}
    (trained / "run.json").write_text(json.dumps(settings))
    flags = {"train_file": "/home/me/secret/a.tsv", "data_dir": "/home/me/secret"}
    (trained / "task.json").write_text(json.dumps(TASK | {"flags": flags}))
    convert_and_push(trained, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "It began as `pretraining`." in card and "a.tsv" in card
    assert "/home" not in card and str(tmp_path) not in card


@pytest.mark.parametrize("other", ["step", "layers", "mean", None])
def test_a_card_has_no_scores_of_another_model(tmp_path, trained, other):
    """Of an earlier step, of some layers, or of the mean of several."""
    step = 4 if other == "step" else 7
    for file in list(trained.glob("model.ckpt-7.*")):
        shutil.copy(file, trained / f"model.ckpt-4{file.suffix}")
    flags = {"keep_layers": [0]} if other == "layers" else {}
    inputs = [f"{trained}/model.ckpt-{step}"] * (2 if other == "mean" else 1)
    out = tmp_path / "out"
    convert(inputs, out, layout="hugging_face", **flags)
    card = (out / "README.md").read_text()
    assert ("## Scores" in card) == (other is None)
    assert "learning_rate" in card


def test_vectors_of_a_classifier_do_not_have_its_scores(tmp_path, trained, capsys):
    convert_and_push(trained, tmp_path / "out", "sentence_transformers")
    assert "the head is left out, which vectors do not need: output" in (
        capsys.readouterr().out
    )
    card = huggingface_hub.ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.pipeline_tag == "feature-extraction"
    assert "it was not trained for them" in card.content
    assert "accuracy" not in card.content


def test_scores_of_vectors_are_of_their_data(tmp_path, trained):
    settings = VectorSettings(normalize=True)._asdict()
    flags = {"data_dir": "my/STS-B", "train_file": "../texts.txt"}
    own = {"task": "SentenceVectorTask", "script": "run_retrieval.py", "flags": flags}
    (trained / "task.json").write_text(json.dumps(own | settings))
    convert_and_push(trained, tmp_path / "out", "sentence_transformers")
    card = huggingface_hub.ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.pipeline_tag == "sentence-similarity"
    assert card.data.eval_results[0].dataset_name == "STS-B"
    assert "not trained" not in card.content


def test_scores_of_a_pre_training_are_not_called_held_out(tmp_path, trained):
    """They may be of the records that it learned from."""
    (trained / "task.json").unlink()
    convert_and_push(trained, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| score | evaluation |" in card and "held-out" not in card


def test_a_model_of_others_has_a_card_of_what_is_known(tmp_path):
    made(tmp_path / "made", CLASSIFIER)
    convert_and_push(tmp_path / "made", tmp_path / "out")
    card = huggingface_hub.ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.pipeline_tag == "text-classification"
    assert "## Scores" not in card.content and "## Data" not in card.content
    assert "weights that classifies texts." in card.content


LAYOUTS = {
    "hugging_face": "transformers",
    "sentence_transformers": "sentence-transformers",
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_everything_is_uploaded_after_it_is_listed(
    tmp_path,
    trained,
    server,  # noqa: F811
    capsys,
    layout,
):
    address = "hf://me/nsmc"
    convert_and_push(trained, tmp_path / "out", layout, push_to=address)
    printed = capsys.readouterr().out
    sent = server.uploaded["me/nsmc"]
    files = (path for path in (tmp_path / "out").rglob("*") if path.is_file())
    names = {str(path.relative_to(tmp_path / "out")) for path in files}
    card = huggingface_hub.ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.library_name == LAYOUTS[layout]
    assert names == set(sent) and "README.md" in names
    for name in names:
        assert sent[name] == (tmp_path / "out" / name).read_bytes()
        assert f"{address}: {name}, " in printed
    assert f"uploaded: {server.url}/me/nsmc/commit/" in printed
    assert "# me/nsmc" in sent["README.md"].decode()


def test_a_card_that_is_there_stays(tmp_path, trained, server, capsys):  # noqa: F811
    convert_and_push(trained, tmp_path / "out", push_to="hf://klue/small-bert")
    assert "README.md" not in server.uploaded["klue/small-bert"]
    printed = capsys.readouterr().out
    assert "README.md is there and stays" in printed
    assert "vocab.txt, 0.0 MB, replaces the one there" in printed


def test_refusals(tmp_path, trained, server):  # noqa: F811
    with pytest.raises(UserError, match="must be hf://organization/name"):
        convert_and_push(trained, tmp_path / "out", push_to="me/nsmc")
    with pytest.raises(
        UserError, match="--push_to has no effect with --layout=release"
    ):
        convert(trained, "x", push_to="hf://me/nsmc")
    server.read_only = True
    with pytest.raises(UserError, match="hf://me/nsmc: access is denied; log in with"):
        convert_and_push(trained, tmp_path / "out", push_to="hf://me/nsmc")
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.exhaustive
def test_an_export_has_a_card_that_its_owner_may_change(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    files = custom(tmp_path, "tsv", ["yes", "no"])
    given = {"do_eval": True, "do_export": True, "max_seq_length": 32} | files
    run(tmp_path, "custom", do_train=True, **given)
    folder = tmp_path / "output" / "export"
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert card.data.pipeline_tag == "text-classification"
    scores = json.loads((folder.parent / "eval_results.json").read_text())
    found = {
        result.metric_type: result.metric_value for result in card.data.eval_results
    }
    assert found["accuracy"] == scores["eval_accuracy"]
    (code,) = re.findall("```python\n(.*?)```", card.content, re.DOTALL)
    exec(code.replace('"text/1"', f'"{folder}/text/1"'), {})  # raises no error

    (folder / "README.md").write_text("completed")
    assert Predictor(str(folder)).predict([{"text": "a"}])
    run(tmp_path, "custom", **given)
    assert (folder / "README.md").read_text() == "completed"
    assert [path.name for path in folder.parent.glob("export*")] == ["export"]
