"""Addresses of models, hf://organization/name, against a small stand-in for the hub."""

import json
import os
import pathlib
import re
import sys

import huggingface_hub.constants
import pytest

import run_classifier
from training.storage.source import Source, read_config
from errors import UserError
from files import hub
from tests import hub_server, jobs
from tests.classifier import WORDS, custom
from tests.conversion import GOLDEN
from tests.training.interchange import hugging_face
from text.tokenizers.table import TOKENIZERS, TokenizerOptions
from text.tokenizers.vocabulary import SPECIAL_TOKENS

ADDRESS = "hf://klue/small-bert"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The stand-in with one model, and an empty cache."""
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    hub.folder.cache_clear()
    with hub_server.serving() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        template = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.url + template
        )
        served.models["klue/small-bert"] = model(tmp_path / "model")
        yield served
    hub.folder.cache_clear()


def model(folder):
    """Transformers' small model, with files that nothing needs."""
    folder.mkdir()
    for path in (GOLDEN / "hf" / "pretraining").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    tokens = [*SPECIAL_TOKENS, *WORDS]
    tokens += [f"[unused{number}]" for number in range(1200 - len(tokens))]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (folder / "pytorch_model.bin").write_bytes(b"pickled")
    (folder / "README.md").write_text("a card")
    return folder


def test_weights_are_those_of_a_local_folder(server, capsys):
    prefix = Source.open(ADDRESS).prefix
    expected = Source.open(str(server.models["klue/small-bert"])).read()
    found = Source.open(prefix).read()
    jobs.check_same_bits(expected, found)
    names = set(os.listdir(os.path.dirname(prefix)))
    assert names == {"config.json", "model.safetensors", "vocab.txt"}
    assert re.search(r"fetching config.json, .* MB\)", capsys.readouterr().err)
    assert read_config(ADDRESS).vocab_size == 1200
    assert TokenizerOptions().load_tokenizer(ADDRESS).vocabulary.tokens[0] == "[PAD]"


def test_what_a_model_of_vectors_has_in_other_folders_is_fetched(server):
    model = server.models["klue/small-bert"]
    kinds = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [{"type": f"x.{kind}", "path": path} for kind, path in kinds.items()]
    (model / "modules.json").write_text(json.dumps(modules))
    (model / "1_Pooling").mkdir()
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": False}
    (model / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    task = Source.open(ADDRESS).task
    assert (task["pooling"], task["normalize"]) == ("cls", False)


def test_a_vocabulary_is_fetched_without_the_weights(server):
    TokenizerOptions().load_tokenizer(f"{ADDRESS}@main")
    assert not [line for line in server.requests if "safetensors" in line]
    assert not [line for line in server.requests if "config.json" in line]


def test_what_was_fetched_is_there_without_a_network(server, monkeypatch, capsys):
    Source.open(ADDRESS)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    hub.folder.cache_clear()
    requests = len(server.requests)
    assert os.path.exists(Source.open(ADDRESS).prefix)
    assert len(server.requests) == requests
    assert "cannot be reached (HF_HUB_OFFLINE is set); using" in capsys.readouterr().err
    with pytest.raises(UserError, match="other: cannot be reached .* lacks it; fetch"):
        Source.open("hf://klue/other")


def test_a_hub_whose_answer_never_ends_is_like_none(server, monkeypatch, capfd):
    monkeypatch.setattr(hub, "ANSWER_SECONDS", 0.3)
    server.dribbles = True
    with pytest.raises(UserError, match="reached .no answer within 0.3 .* lacks it"):
        Source.open(ADDRESS)
    server.dribbles = False
    hub.folder.cache_clear()
    prefix = Source.open(ADDRESS).prefix
    server.dribbles = True
    hub.folder.cache_clear()
    capfd.readouterr()
    assert Source.open(ADDRESS).prefix == prefix
    assert capfd.readouterr().err == (
        f"{ADDRESS}: cannot be reached (no answer within 0.3 seconds); using the cache\n"
    )


def test_weights_in_several_files_are_fetched(server, monkeypatch, capsys):
    expected = Source.open(ADDRESS).read()
    hugging_face.split(server.models["klue/small-bert"])
    hub.folder.cache_clear()
    monkeypatch.setattr(
        huggingface_hub.constants,
        "HF_HUB_CACHE",
        huggingface_hub.constants.HF_HUB_CACHE + "-2",
    )
    for offline in (False, True):
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        hub.folder.cache_clear()
        found = Source.open(ADDRESS).read()
        jobs.check_same_bits(found, expected)
    said = capsys.readouterr().err
    assert "fetching model-00001-of-00002.safetensors, model-00002" in said
    # One of them is no longer in the cache.
    folder = pathlib.Path(Source.open(ADDRESS).prefix).parent
    (folder / "model-00002-of-00002.safetensors").unlink()
    hub.folder.cache_clear()
    with pytest.raises(UserError, match="and the cache of huggingface_hub lacks it"):
        Source.open(ADDRESS)


def test_a_single_file_goes_before_several(server):
    folder = server.models["klue/small-bert"]
    whole = (folder / "model.safetensors").read_bytes()
    hugging_face.split(folder)
    (folder / "model.safetensors").write_bytes(whole)
    assert Source.open(ADDRESS).prefix.endswith("/model.safetensors")
    assert not [line for line in server.requests if "index" in line or "-of-" in line]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "model-00003-of-00003.safetensors",
            "has no model-00003-of-00003.safetensors, wh",
        ),
        ("../../x.safetensors", "but only safetensors files in the folder"),
    ],
)
def test_an_index_of_what_is_not_there_is_refused(server, name, message):
    folder = server.models["klue/small-bert"]
    hugging_face.split(folder)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"bert.pooler.dense.bias": name}}))
    with pytest.raises(UserError, match=message):
        Source.open(ADDRESS)
    assert not [line for line in server.requests if name in line]


def test_a_damaged_file_is_not_kept(server):
    server.damaged.add("model.safetensors")
    with pytest.raises(UserError, match="model.safetensors arrived damaged"):
        Source.open(ADDRESS)
    server.damaged.clear()
    assert Source.open(ADDRESS).read()


def test_small_files_are_checked_too(server):
    server.damaged.add("vocab.txt")
    with pytest.raises(UserError, match="vocab.txt arrived damaged"):
        TokenizerOptions().load_tokenizer(ADDRESS)


def test_a_mirror_without_checksums_is_not_called_damaged(server, capsys):
    server.has_checksums = False
    assert Source.open(ADDRESS).read()
    assert "model.safetensors\n" in capsys.readouterr().err  # and no size


def test_the_files_of_every_kind_of_vocabulary_are_fetched():
    """The table of kinds imports the hub, so the hub repeats their names."""
    for kind in TOKENIZERS.values():
        assert not kind.hugging_face_classes or kind.vocabulary_file in hub._TEXT


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf://klue/none", "hf://klue/none: no such model, or a private one"),
        ("hf://klue/small-bert@v9", "has no revision v9"),
        ("hf://klue/small-bert/../../etc", "must be hf://organization/name or"),
        ("hf://klue/small-bert/vocab.txt", "without a path in it"),
        ("hf://klue", "no such model"),
        ("hf://", "must be hf://organization/name or"),
        ("hf://klue/small-bert@../x", "must be hf://organization/name or"),
        ("hf://klue/gated", "is gated; accept its conditions on its page"),
        (
            "hf://klue/pickled",
            "has no model.safetensors, only pytorch_model.bin; only safetensors",
        ),
    ],
)
def test_refusals(server, tmp_path, address, message):
    server.gated.add("klue/gated")
    server.models["klue/gated"] = server.models["klue/small-bert"]
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "pytorch_model.bin").write_bytes(b"x")
    (pickled / "config.json").write_text("{}")
    server.models["klue/pickled"] = pickled
    with pytest.raises(UserError, match=message) as refused:
        Source.open(address)
    assert "\n" not in str(refused.value)
    assert not [line for line in server.requests if "pytorch_model" in line]


def test_a_model_without_a_vocabulary_is_refused(server):
    (server.models["klue/small-bert"] / "vocab.txt").unlink()
    with pytest.raises(UserError, match="has no vocab.txt or vocab.json or spiece"):
        TokenizerOptions().load_tokenizer(ADDRESS)


def test_without_the_package_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", None)
    hub.folder.cache_clear()
    with pytest.raises(UserError, match="pip install -r requirements/hub.txt"):
        Source.open(ADDRESS)


@pytest.mark.exhaustive
def test_a_run_goes_on_without_the_hub(server, tmp_path, monkeypatch):
    folder = tmp_path / "task"
    folder.mkdir()
    files = custom(folder, "tsv", ["yes", "no"])
    flags = {"init_checkpoint": ADDRESS, "vocab_file": None, "bert_config_file": None}
    flags |= {"output_dir": str(folder / "out"), "num_train_epochs": [1.0], **files}
    trained = run_classifier.Options(
        task_name="custom",
        data_dir=str(folder),
        max_seq_length=32,
        train_batch_size=[8],
        do_train=True,
        do_eval=True,
        **flags,
    )
    run_classifier.main(trained)
    results = (folder / "out" / "eval_results.txt").read_text()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "no"))
    hub.folder.cache_clear()
    run_classifier.main(trained)
    assert (folder / "out" / "eval_results.txt").read_text() == results
