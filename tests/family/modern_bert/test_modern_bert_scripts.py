"""ModernBERT through the scripts: pre-trained from nothing, fine-tuned, exported."""

import dataclasses
import json

import numpy as np
import pytest

import run_pretraining
from family.modern_bert.config import ModernBertConfig
from tests import jobs, low_rank, pretraining
from tests.conversion import convert
from tests.relatives import CONFIGS, TASKS, classifier_from_a_start, write_start

pytestmark = pytest.mark.slow

CONFIG = CONFIGS["modern_bert"]


def test_a_masked_lm_is_trained_with_its_head_and_goes_on_with_the_same_bits(
    tmp_path, capsys, untraced
):
    config = ModernBertConfig(3000, 16, 4, 2, 24, local_attention=8)
    assert config.is_in_blocks(64)
    given = {"config": config, "objective": "masked_lm", "save_checkpoints_steps": 2}
    after = pretraining.run_twice(tmp_path, capsys, **given)
    (tmp_path / "first").mkdir()
    first = pretraining.flags(tmp_path / "first", **given) | {"num_train_steps": 1}
    jobs.run(run_pretraining, first | {"num_warmup_steps": 0, "learning_rate": 1e-12})
    before = jobs.weights(tmp_path / "first")
    names = [name for name in before if name.startswith(("modern_bert/", "cls/"))]
    assert "modern_bert/head/dense/kernel" in names
    for name in (name for name in names if "/adam_" not in name):
        assert np.abs(after[name] - before[name]).max() > 1e-6, name


# A pooled row, and a vector for each token; FINE_TUNED has the other heads.
CASES = [("SequenceClassification", ["onnx", "litert"]), ("QuestionAnswering", [])]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("head", "formats"), CASES)
def test_every_kind_of_head_trains_and_is_exported(tmp_path, untraced, head, formats):
    """With an export whose rows vary in length, and so are computed in blocks.

    A row is longer than the window of local layers, also in the other formats.
    """
    script, write_files, flags, score = TASKS[head]
    write_files(tmp_path)
    config = dataclasses.replace(CONFIG, local_attention=2)
    start, _ = write_start(tmp_path, config)
    given = flags(tmp_path, layerwise_lr_decay=0.8, train_batch_size=[16], **start)
    given |= {"do_train": True, "do_eval": True, "do_export": True}
    given |= {"export_formats": formats} if formats else {}
    jobs.run(script, given)  # which asks the export for what Python answers
    assert 0 <= jobs.results(tmp_path)[score]
    assert list((tmp_path / "output" / "export").rglob("saved_model.pb"))


@pytest.mark.exhaustive
def test_adapters_of_one_matrix_a_layer_are_kept_resumed_and_merged(tmp_path, untraced):
    run = classifier_from_a_start(tmp_path, CONFIG, pooling="mean", **low_rank.SHORT)
    layers = range(CONFIG.num_hidden_layers)
    low_rank.check_run(
        tmp_path,
        lambda **changes: run(tmp_path, **changes),
        [f"modern_bert/encoder/layer_{n}/attention/Wqkv" for n in layers],
    )
    convert(
        input=[str(tmp_path / "output")],
        output_dir=str(tmp_path / "merged"),
        layout="hugging_face",
    )
    values = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert values["architectures"] == ["ModernBertForSequenceClassification"]
    assert values["classifier_pooling"] == "mean"
