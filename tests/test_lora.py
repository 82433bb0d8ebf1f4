"""--lora_rank: adapters are trained and kept alone; all else sees the whole model."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from training.backend import tf
from training.storage import (
    adapters,
    checkpoint,
    checkpoint_contents,
    loading,
    weight_formats,
)
from training.storage.folder import Folder
from training.storage.source import Source, read_config
from errors import UserError
from modeling import layers
from modeling.architectures.word_vectors import WordEmbeddingsConfig
from modeling.objectives import tasks
from modeling.objectives.low_rank import LowRank, frozen_paths
from tests import classifier, jobs, relatives
from tests.conversion import convert

DEEP = dataclasses.replace(classifier.TINY, num_hidden_layers=2)
ADAPTED = "bert/encoder/layer_{}/attention/self/{}"


@pytest.fixture
def folder(tmp_path):
    start = relatives.classifier_from_a_start(tmp_path, DEEP, learning_rate=[1e-2])

    def run(source, **changes):
        adapted = {"lora_rank": 2, "lora_alpha": 6.0} if changes.get("do_train") else {}
        start(source, **adapted | changes)

    return tmp_path, run


def low_rank(rank=2, targets=("query", "value"), alpha=4.0):
    task = tasks.Classification(2)
    return LowRank(task, rank=rank, alpha=alpha, targets=targets)


def test_a_kernel_changes_by_the_product_times_alpha_over_rank():
    dense = layers.Dense(5, "glorot_uniform", "float32")
    dense.build((None, 4))
    dense.enable_lora(2, 6.0, b_initializer="glorot_uniform")
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    a, b = dense.lora_kernel_a.numpy(), dense.lora_kernel_b.numpy()
    kernel = dense._kernel.numpy() + 6.0 / 2 * a @ b
    np.testing.assert_allclose(dense.product(x), x @ kernel, atol=1e-5)
    weights = {f"dense/{v.name}": v for v in dense.weights}
    np.testing.assert_allclose(
        adapters.without(weights, 6.0)["dense/kernel"], kernel, atol=1e-6
    )


def test_only_adapters_and_the_head_are_trained():
    objective = low_rank()
    objective.check(DEEP)
    model = objective.network(DEEP, seed=3)
    expected = {"output_weights", "output_bias"}
    for number in range(2):
        for name in ("query", "value"):
            path = ADAPTED.format(number, name)
            expected |= {f"{path}/lora_kernel_a", f"{path}/lora_kernel_b"}
    assert {v.path for v in model.trainable_variables} == expected
    assert frozen_paths(model) == {v.path for v in model.weights} - expected
    first = {v.path: v.numpy() for v in model.trainable_variables}
    for variable in objective.network(DEEP, seed=3).trainable_variables:
        np.testing.assert_array_equal(first[variable.path], variable.numpy())
        if variable.path.endswith("_b"):
            assert not np.any(variable.numpy())
        elif variable.path.endswith("_a"):
            bound = 1 / np.sqrt(DEEP.hidden_size)
            assert 0.5 * bound < np.abs(variable.numpy()).max() <= bound
    same = tasks.Classification(2).network(DEEP, seed=3)
    ids = {"input_ids": tf.ones((1, 4), tf.int32)}
    np.testing.assert_array_equal(model(ids)["logits"], same(ids)["logits"])


def test_checkpoints_have_adapters_alone_and_are_read_whole(folder, tmp_path, capsys):
    folder, run = folder
    changes = {"gradient_accumulation_steps": 2, "recompute": True}
    flags = {"do_eval": True, "do_predict": True, "do_export": True}
    run(folder, do_train=True, **flags, **changes)
    prefix = Source.open(str(folder / "output")).prefix
    stored = Source.open(prefix).format.read()
    assert "output_weights" in stored and "output_weights/adam_m" in stored
    own = [name for name in stored if name.startswith("bert/")]
    assert own and all("/lora_kernel_" in name for name in own)
    # A resume ends with the same bits.
    shutil.copytree(folder / "output", tmp_path / "other")
    jobs.forget_after(20, tmp_path, "other")
    run(folder, do_train=True, output_dir=str(tmp_path / "other"), **changes)
    assert "continuing from step 20" in capsys.readouterr().out
    again = Source.open(str(tmp_path / "other")).format.read()
    jobs.check_same_bits(again, stored)
    # Read as a whole, it is the base and what was added.
    whole, base = (
        jobs.weights(folder),
        Source.open(str(folder / "model.ckpt-best")).read(),
    )
    assert base.keys() <= whole.keys() and not any(map(loading.is_adapter, whole))
    path = ADAPTED.format(1, "value")
    change = 3.0 * stored[f"{path}/lora_kernel_a"] @ stored[f"{path}/lora_kernel_b"]
    assert np.abs(change).max() > 1e-3
    np.testing.assert_allclose(
        whole[f"{path}/kernel"], base[f"{path}/kernel"] + change, atol=1e-6
    )
    kept = ADAPTED.format(1, "key") + "/kernel"
    np.testing.assert_array_equal(whole[kept], base[kept])
    # Later commands, exports and conversions need no flag.
    before = jobs.results(folder)
    run(folder, do_eval=True)
    assert jobs.results(folder) == pytest.approx(before, abs=1e-5)
    jobs.check_export(folder)
    convert(folder / "output", tmp_path / "merged")
    merged = Source.open(str(tmp_path / "merged")).read()
    assert "global_step" in whole and "global_step" not in merged
    np.testing.assert_array_equal(merged[f"{path}/kernel"], whole[f"{path}/kernel"])


def test_another_base_is_refused(folder, capsys):
    folder, run = folder
    run(folder, do_train=True, num_train_epochs=[0.5])
    with pytest.raises(UserError, match="lora_rank was 2 and is now 3"):
        run(folder, do_train=True, num_train_epochs=[0.5], lora_rank=3)
    prefix = str(folder / "model.ckpt-best")
    weights = Source.open(prefix).read()
    weights["bert/embeddings/word_embeddings"] += 1e-3
    checkpoint.write_bundle(prefix, weights)
    with pytest.raises(UserError, match="not the weights with which the adapters of"):
        run(folder, do_eval=True)
    with pytest.raises(UserError, match="not the weights with which the adapters of"):
        run(folder, do_train=True, num_train_epochs=[0.5])
    for part in folder.glob("model.ckpt-best.*"):
        part.unlink()
    with pytest.raises(UserError, match="model.ckpt-best: no such .* change `base` in"):
        run(folder, do_eval=True)
    (folder / "output" / "adapter.json").unlink()
    with pytest.raises(UserError, match="adapter.json: does not say to which"):
        run(folder, do_eval=True)


NOTE = {"base": "x", "base_sha256": "0f", "scope": ["bert/"], "alpha": 6.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "does not say to which checkpoint"),
        ({}, "does not say to which checkpoint"),
        (NOTE | {"base": None}, "adapter.json: base is None; copy the file"),
        (NOTE | {"base_sha256": 3}, "base_sha256 is 3;"),
        (NOTE | {"scope": "bert/"}, "scope is 'bert/';"),
        (NOTE | {"alpha": "x"}, "alpha is 'x';"),
        (NOTE | {"alpha": -1}, "alpha is -1;"),
        (NOTE | {"alpha": True}, "alpha is True;"),
    ],
)
def test_a_note_that_was_changed_by_hand_is_refused(tmp_path, content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "adapter.json").write_text(text)
    with pytest.raises(UserError, match=message):
        adapters.read_note(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q/lora_kernel_a": None}, "file: q has no lora_kernel_a, only the other"),
        ({"q/lora_kernel_b": None}, "file: q has no lora_kernel_b, only the other"),
        (dict.fromkeys(["q/lora_kernel_a", "q/lora_kernel_b"]), "contains no adapters"),
        ({"q/lora_kernel_a": (4, 3)}, r"shapes \[4, 3\] and \[2, 5\], and in the base"),
        ({"q/lora_kernel_a": (5, 2)}, r"kernel is of the shape \[4, 5\]; use the base"),
        (
            {"q/lora_kernel_a": (4, 0), "q/lora_kernel_b": (0, 5)},
            "adapters of the shapes",
        ),
        ({"k/lora_kernel_a": (4, 2), "k/lora_kernel_b": (2, 5)}, "kernel is missing"),
    ],
)
def test_adapters_that_are_not_whole_are_refused(changes, message):
    own = {"q/lora_kernel_a": (4, 2), "q/lora_kernel_b": (2, 5), "head": (5,)}
    adapters.check_fits({"q/kernel": (4, 5)}, own, "file")
    own = {name: shape for name, shape in (own | changes).items() if shape}
    with pytest.raises(UserError, match=message):
        adapters.check_fits({"q/kernel": (4, 5)}, own, "file")


def test_a_base_is_read_once(folder, monkeypatch):
    folder, run = folder
    base = str(folder / "model.ckpt-best")
    own = {
        f"{ADAPTED.format(1, 'query')}/lora_kernel_{side}": np.ones(shape, np.float32)
        for side, shape in (("a", (16, 2)), ("b", (2, 16)))
    }
    (folder / "output").mkdir()
    prefix = str(folder / "output" / "model.ckpt-1")
    checkpoint.write_bundle(prefix, own | {"output_bias": np.ones(2, np.float32)})
    digest = checkpoint_contents.digest(Source.open(base).read())
    note = adapters.Note(base, digest, ["bert/"], 6.0)
    adapters.write_note(Folder.open(str(folder / "output")), note)
    read, opened = weight_formats.Bundle.read, []

    def counted(bundle, names=None):
        opened.append(bundle.path)
        return read(bundle, names)

    monkeypatch.setattr(weight_formats.Bundle, "read", counted)
    model = tasks.Classification(2).network(read_config(str(folder)))
    report = Source.open(prefix).load({v.path: v for v in model.weights})
    assert report.initial == ["output_weights"] and opened.count(base) == 1
    shapes = {name: value.shape for name, value in Source.open(prefix).read().items()}
    assert Source.open(prefix).shapes() == shapes


@pytest.mark.exhaustive
def test_a_search_and_early_stopping_keep_adapters(folder, untraced):
    folder, run = folder
    changes = {"num_trials": 2, "early_stopping_patience": 1, "do_eval": True}
    changes["eval_batch_size"] = 80
    run(folder, do_train=True, num_train_epochs=[0.25], **changes)
    before = jobs.results(folder)
    run(folder, do_eval=True)
    assert jobs.results(folder) == pytest.approx(before, abs=1e-5)


REFUSED = [
    ({"lora_rank": 17}, "--lora_rank is 17, more than 16, the width of query"),
    ({"lora_targets": ["query", "v"]}, "'v', which no dense layer .* called"),
    ({"lora_rank": 0}, "lora_rank=0: must be at least 1"),
    ({"lora_targets": []}, "--lora_targets= is empty"),
    ({"features": "last"}, "--lora_rank has no effect with --features"),
    ({"freeze_layers": 1}, "--lora_rank has no effect with --freeze_layers"),
    ({"lora_rank": None}, "--lora_alpha has no effect without --lora_rank"),
    ({"init_checkpoint": None}, "frozen layers need --init_checkpoint"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_cannot_be_adapted_is_refused(folder, changes, message):
    folder, run = folder
    with pytest.raises(UserError, match=message):
        run(folder, do_train=True, **changes)


def test_adapters_are_not_written_into_the_folder_of_their_base(folder):
    folder, run = folder
    with pytest.raises(UserError, match="is the folder of --init_checkpoint"):
        run(folder, do_train=True, init_checkpoint=str(folder / "output"))


def test_an_encoder_without_dense_layers_has_nothing_to_adapt():
    with pytest.raises(UserError, match="has no dense layers to adapt; remove --lora"):
        low_rank().check(WordEmbeddingsConfig(40, hidden_size=16))
