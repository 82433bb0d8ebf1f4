"""What a head for whole rows reads: the first token, the last, or the mean of all."""

import dataclasses

import numpy as np
import pytest

import run_classifier
from training.storage.source import Source, read_config
from errors import UserError
from modeling.objectives import tasks
from tests import jobs, tiny
from training.interchange import hugging_face

LENGTHS = np.array([3, 12, 1])


def batch():
    ids = np.random.default_rng(0).integers(1, 40, (3, 12))
    mask = (np.arange(12) < LENGTHS[:, None]).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask}


@pytest.mark.parametrize(
    "direction, pooling, reads",
    [
        ("both", None, "first"),
        ("right_to_left", None, "first"),
        ("left_to_right", None, "last"),
        ("left_to_right", "first", "first"),
        ("both", "last", "last"),
        ("both", "mean", "mean"),
    ],
)
def test_the_head_reads_what_it_is_told_or_what_sees_the_row(direction, pooling, reads):
    config = tiny.config(attention_direction=direction, pooling=pooling)
    model = tasks.Classification(3).network(config)
    hidden = model.encoder(batch())["sequence_output"].numpy()
    vectors = {
        "first": hidden[:, 0],
        "last": hidden[np.arange(3), LENGTHS - 1],
        "mean": np.stack(
            [row[:n].mean(axis=0) for row, n in zip(hidden, LENGTHS, strict=True)]
        ),
    }
    expected = model.logits(model.encoder.pooler(vectors[reads]))
    np.testing.assert_allclose(model(batch())["logits"], expected, rtol=0, atol=1e-6)
    choices = {name: x.reshape(1, 3, 12) for name, x in batch().items()}
    choices["segment_ids"] = np.zeros((1, 3, 12), np.int32)
    model = tasks.Choice().network(config)
    pooled = model.encoder.pool(
        {
            "sequence_output": (h := model.encoder(batch())["sequence_output"]),
            "pooled_output": model.encoder.pooler(h[:, 0]),
        },
        batch()["input_mask"],
    )
    np.testing.assert_allclose(
        model(choices)["logits"][0], model.logits(pooled)[:, 0], rtol=0, atol=1e-6
    )


def test_the_vectors_of_two_orders_are_added_below_the_head():
    check_two_orders(tiny.config(attention_direction="left_to_right"))


def check_two_orders(config):
    model = tasks.Classification(3).network(config)
    model.output_bias.assign([1.0, -2.0, 3.0])  # which counts once
    orders = [batch(), {name: x[::-1] for name, x in batch().items()}]
    pooled = [
        model.encoder.pool(model.encoder(order), order["input_mask"])
        for order in orders
    ]
    both = {name: np.stack([x[name] for x in orders], axis=1) for name in batch()}
    both["segment_ids"] = np.zeros_like(both["input_ids"])
    expected = (pooled[0] + pooled[1]) @ model.output_weights.numpy().T
    expected = expected + model.output_bias.numpy()
    np.testing.assert_allclose(model(both)["logits"], expected, rtol=0, atol=1e-6)


def test_one_sided_first_token_is_the_same_for_every_text():
    """Which is why the last one is the default."""
    config = tiny.config(attention_direction="left_to_right", pooling="first")
    first = batch() | {"input_ids": batch()["input_ids"] * 0 + 7}
    first["input_ids"][:, 1:] = batch()["input_ids"][:, 1:]
    logits = tasks.Classification(3).network(config)(first)["logits"].numpy()
    assert np.ptp(logits, axis=0).max() == 0.0


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, ["a", "b"], tiny.config(attention_direction="left_to_right"))
    lines = "text\tlabel\n" + "a b\tx\nb a\ty\n" * 8
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(lines)
    return tmp_path


def run(folder, **changes):
    own = {
        "task_name": "custom",
        "data_dir": str(folder),
        "train_file": "train.tsv",
        "dev_file": "dev.tsv",
        "max_seq_length": 8,
    }
    jobs.run(run_classifier, jobs.flags(folder, **own | changes))


@pytest.mark.exhaustive
def test_a_run_says_and_notes_what_its_head_reads(folder, capsys, untraced):
    run(
        folder,
        do_train=True,
        do_eval=True,
        num_train_epochs=[12.0],
        learning_rate=[1e-2],
    )
    assert "on 1 device; its head reads the last token" in capsys.readouterr().out
    assert jobs.results(folder)["eval_accuracy"] == 1.0  # by the order of the words
    output = {"output_dir": str(folder / "mean"), "do_train": True, "pooling": "mean"}
    run(folder, **output)
    assert "its head reads the mean of all tokens" in capsys.readouterr().out
    config = read_config(str(folder / "mean"))
    assert config.pooling == "mean"
    with pytest.raises(UserError, match="pooling is None, but 'mean' in .*; use that"):
        run(folder, output_dir=str(folder / "mean"), do_eval=True)
    with pytest.raises(UserError, match="pooling was 'mean' and is now 'first'"):
        run(folder, **output | {"pooling": "first"})
    # Hugging Face's layout has no place for it.
    tensors = Source.open(str(folder / "mean")).read()
    tensors = {
        name: value
        for name, value in tensors.items()
        if name.startswith(("bert/", "output")) and "adam" not in name
    }
    with pytest.raises(UserError, match="head reads the mean .* cannot hold it"):
        hugging_face.write(str(folder / "theirs"), tensors, config)
    first = dataclasses.replace(config, pooling="first")
    hugging_face.write(str(folder / "theirs"), tensors, first)
    assert read_config(str(folder / "theirs")) == first
