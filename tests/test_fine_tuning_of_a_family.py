"""Every fine-tuning script on checkpoints of a family, with layer-wise rates."""

import dataclasses
import json

import numpy as np
import pytest

import extract_features
import run_classifier
from training.storage import checkpoint
from errors import UserError
from modeling.architectures.albert_config import AlbertConfig
from modeling.architectures.electra_config import ElectraConfig
from modeling.architectures.elmo_config import ElmoConfig
from modeling.architectures.gpt_config import GptConfig
from modeling.architectures.t5_config import T5Config
from modeling.architectures.table import make_encoder
from modeling.architectures.xlnet_config import XlnetConfig
from tests import jobs
from tests.test_roberta import TASKS, classifier_files, classifier_flags

SIZES = {
    "vocab_size": 9,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "albert": AlbertConfig(**SIZES),
    "electra": ElectraConfig(**SIZES),
    "xlnet": XlnetConfig(9, 16, 2, 2, 8, 16, "gelu", True),
    "elmo": ElmoConfig(9, hidden_size=16, lstm_size=12),
    "gpt": GptConfig(9, 16, 2, 2, 16, max_position_embeddings=64),
    "t5": T5Config(9, 16, 2, 2, 16, attention_head_size=8, eos_token_id=3),
}
LOWEST = ("embeddings", "table", "word_embedding/lookup_table", "shared/embedding")
HIGHEST = ("/layer_1/", "group_0", "/block_001/")


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


def write_start(folder, config):
    """A checkpoint for the vocabulary there; -> flags, and its weights."""
    size = len((folder / "vocab.txt").read_text().split())
    config = dataclasses.replace(config, vocab_size=size)
    (folder / "config.json").write_text(config.to_json_string())
    weights = {v.path: v.numpy() for v in make_encoder(config, seed=7).weights}
    prefix = str(folder / "model.ckpt-best")
    checkpoint.write_bundle(prefix, weights)
    return {"init_checkpoint": prefix}, weights


@pytest.mark.slow
@pytest.mark.parametrize("head", TASKS)
def test_every_task_trains(tmp_path, untraced, head, config):
    script, write_files, flags, score = TASKS[head]
    write_files(tmp_path)
    start, _ = write_start(tmp_path, config)
    given = flags(
        tmp_path,
        train_batch_size=[16],
        layerwise_lr_decay=0.8,
        optimizer="electra_adam",
        **start,
    )
    jobs.run(script, given | {"do_train": True, "do_eval": True})
    assert 0 <= jobs.results(tmp_path)[score]
    with pytest.raises(UserError, match="layerwise_lr_decay was 0.8 and is now 0.9"):
        jobs.run(script, given | {"do_train": True, "layerwise_lr_decay": 0.9})


def test_a_config_of_another_architecture_is_named(tmp_path, config):
    classifier_files(tmp_path)
    start, _ = write_start(tmp_path, config)
    other = CONFIGS["electra" if config.architecture == "albert" else "albert"]
    (tmp_path / "other.json").write_text(other.to_json_string())
    with pytest.raises(UserError, match=f"'{other.architecture}', but the weights are"):
        given = {"do_train": True, "bert_config_file": f"{tmp_path}/other.json"}
        jobs.run(run_classifier, classifier_flags(tmp_path, **start) | given)


@pytest.mark.slow
def test_lower_layers_learn_more_slowly(tmp_path, untraced, config):
    classifier_files(tmp_path)
    start, weights = write_start(tmp_path, config)
    given = classifier_flags(tmp_path, do_train=True, weight_decay=0.0, **start)
    jobs.run(run_classifier, given | {"layerwise_lr_decay": 0.1})
    learned = checkpoint.read(checkpoint.resolve(str(tmp_path / "output")))
    moved = {k: np.abs(learned[k] - v).max() for k, v in weights.items()}
    assert max(v for k, v in moved.items() if k.endswith(LOWEST)) < 2e-6
    highest = [v for k, v in moved.items() if any(name in k for name in HIGHEST)]
    assert max(highest) > 2e-5
    assert np.abs(learned["output_bias"]).max() > 1e-3


@pytest.mark.slow
def test_a_run_that_noted_no_layerwise_rates_had_none(tmp_path, untraced, config):
    classifier_files(tmp_path)
    start, _ = write_start(tmp_path, config)
    given = classifier_flags(tmp_path, do_train=True, num_train_epochs=[0.5], **start)
    jobs.run(run_classifier, given)
    path = tmp_path / "output" / "run.json"
    noted = json.loads(path.read_text())
    assert noted.pop("layerwise_lr_decay") == 1.0
    path.write_text(json.dumps(noted))
    with pytest.raises(UserError, match="layerwise_lr_decay was 1.0 and is now 0.8"):
        jobs.run(run_classifier, given | {"layerwise_lr_decay": 0.8})
    jobs.run(run_classifier, given)
    for value in (0.0, 1.5):
        with pytest.raises(UserError, match="must be above 0 and at most 1"):
            jobs.run(run_classifier, given | {"layerwise_lr_decay": value})


@pytest.mark.slow
def test_vectors_of_a_text(tmp_path, untraced, config):
    classifier_files(tmp_path)
    start, _ = write_start(tmp_path, config)
    (tmp_path / "texts").write_text("a b ||| a\n")
    given = {
        "input_file": str(tmp_path / "texts"),
        "output_file": str(tmp_path / "features"),
        "vocab_file": str(tmp_path / "vocab.txt"),
        "bert_config_file": str(tmp_path / "config.json"),
        "max_seq_length": 16,
        "layers": [-1, -2],
    }
    jobs.run(extract_features, given | start)
    line = json.loads((tmp_path / "features").read_text())
    assert len(line["features"]) == 6
    for token in line["features"]:
        assert [len(layer["values"]) for layer in token["layers"]] == [16, 16]
