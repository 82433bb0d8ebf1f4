"""ALBERT through every script, with a WordPiece vocabulary."""

import dataclasses
import json

import numpy as np
import pytest

import run_pretraining
from training.storage.source import Source
from family.albert.encoder import AlbertConfig
from serving.predictor import Predictor
from tests import jobs
from tests.pretraining import flags
from tests.relatives import TASKS
from tests.text.generation.settings import VOCAB_FILE

CONFIG = AlbertConfig(
    vocab_size=3000,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)


def pretrain(folder, **changes):
    own = {"config": CONFIG, "vocab_file": VOCAB_FILE, "optimizer": "lamb"}
    jobs.run(run_pretraining, flags(folder, **own | changes))


@pytest.mark.exhaustive
def test_a_run_from_records_to_masks(tmp_path, capsys, untraced):
    pretrain(tmp_path, do_export=True, recompute=True)
    output = tmp_path / "output"
    jobs.check_masks(str(output), VOCAB_FILE, capsys)
    learned = Source.open(f"{output}/model.ckpt-6").read()
    shared = "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate"
    assert learned[f"{shared}/output/dense/kernel"].shape == (32, 16)
    # Without --recompute, the same, except for the order of sums over the layers.
    (tmp_path / "again").mkdir()
    pretrain(tmp_path / "again")
    again = Source.open(f"{tmp_path}/again/output/model.ckpt-6").read()
    assert learned.keys() == again.keys()
    for name, value in learned.items():
        np.testing.assert_allclose(value, again[name], atol=1e-5, err_msg=name)


@pytest.mark.exhaustive
def test_a_task_trains_and_exports(tmp_path, untraced):
    """The others: test_fine_tuning_of_a_family.py."""
    script, write_files, flags_of, score = TASKS["SequenceClassification"]
    write_files(tmp_path)
    given = flags_of(tmp_path, train_batch_size=[16])
    path = given["bert_config_file"]
    with open(path, encoding="utf-8") as file:
        size = json.load(file)["vocab_size"]
    config = dataclasses.replace(CONFIG, vocab_size=size)
    with open(path, "w", encoding="utf-8") as file:
        file.write(config.to_json_string())
    jobs.run(script, given | {"do_train": True, "do_eval": True, "do_export": True})
    assert 0 <= jobs.results(tmp_path)[score]
    Predictor(str(tmp_path / "output"))
