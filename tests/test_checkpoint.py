"""Checkpoints: the format, what survives a kill, what is said of what does not fit."""

import filecmp
import os
import pathlib
import shutil

import numpy as np
import pytest

import training  # noqa: F401  (first: it chooses Keras's backend)
from text.errors import UserError
from training import checkpoint

# isort: split
import tensorflow as tf

GOLDEN = os.path.join(os.path.dirname(__file__), "golden", "checkpoint")
KERNEL = np.arange(6, dtype=np.float32).reshape(2, 3)


def tensors(step=0):
    return {
        "bert/dense/kernel": KERNEL + step,
        "bert/dense/bias": np.zeros(3, np.float32),
        "bert/dense/kernel/adam_m": np.ones((2, 3), np.float32),
        "global_step": np.int64(step),
    }


def variables():
    return {
        "bert/dense/kernel": tf.Variable(tf.zeros([2, 3])),
        "bert/dense/bias": tf.Variable(tf.ones([3])),
        "cls/output_bias": tf.Variable(tf.fill([2], 7.0)),
    }


def damage(prefix, part, keep):
    """Cuts a file of a checkpoint, or flips one bit (keep=None)."""
    path = pathlib.Path(prefix + part)
    content = bytearray(path.read_bytes())
    if keep is None:
        content[len(content) // 2] ^= 1
    path.write_bytes(content[:keep])


def test_tensorflow_finds_and_reads_what_is_saved(tmp_path):
    for step in (3, 12):
        checkpoint.save(str(tmp_path), step, tensors(step), keep=5)
    assert tf.train.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/model.ckpt-12"
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [os.path.basename(p) for p in state.all_model_checkpoint_paths] == [
        "model.ckpt-3",
        "model.ckpt-12",
    ]
    reader = tf.train.load_checkpoint(str(tmp_path))
    assert reader.get_tensor("global_step") == 12
    np.testing.assert_array_equal(reader.get_tensor("bert/dense/kernel"), KERNEL + 12)
    # Wherever the folder is moved, its state file still names what is in it.
    shutil.copytree(tmp_path, tmp_path / "moved")
    moved = str(tmp_path / "moved")
    assert tf.train.latest_checkpoint(moved) == f"{moved}/model.ckpt-12"


def test_equal_tensors_give_equal_bytes(tmp_path):
    first = checkpoint.save(str(tmp_path / "a"), 1, tensors(), keep=1)
    second = checkpoint.save(
        str(tmp_path / "b"), 1, dict(reversed(tensors().items())), keep=1
    )
    for part in (".index", ".data-00000-of-00001"):
        assert filecmp.cmp(first + part, second + part, shallow=False)


def test_oldest_checkpoints_are_dropped(tmp_path):
    for step in (1, 2, 10):
        checkpoint.save(str(tmp_path), step, tensors(step), keep=2)
    assert checkpoint.steps(str(tmp_path)) == [2, 10]
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint",
        "model.ckpt-10.data-00000-of-00001",
        "model.ckpt-10.index",
        "model.ckpt-2.data-00000-of-00001",
        "model.ckpt-2.index",
    ]
    checkpoint.save(str(tmp_path), 11, tensors(11), keep=0)
    assert checkpoint.steps(str(tmp_path)) == [2, 10, 11]


def test_half_written_checkpoints_are_not_read_and_are_removed(tmp_path):
    directory = str(tmp_path)
    prefix = checkpoint.save(directory, 1, tensors(1), keep=5)
    for name in (
        "writing-model.ckpt-2.index",
        "writing-model.ckpt-2.data-00000-of-00001",
        "writing-checkpoint",
        "model.ckpt-3.data-00000-of-00001",  # killed before .index had its name
    ):
        shutil.copy(f"{prefix}.index", tmp_path / name)
    os.remove(tmp_path / "checkpoint")  # killed before the first state file
    assert checkpoint.newest(directory)[0] == prefix
    assert checkpoint.resolve(directory) == prefix
    checkpoint.prepare(directory)
    assert sorted(os.listdir(tmp_path)) == [
        "model.ckpt-1.data-00000-of-00001",
        "model.ckpt-1.index",
    ]


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


# What saving 3 after 1 and 2 with keep=2 does to final names, in this order.
CHANGES = [
    "rename model.ckpt-3.data-00000-of-00001",
    "rename model.ckpt-3.index",
    "rename checkpoint",
    "remove model.ckpt-1.index",
    "remove model.ckpt-1.data-00000-of-00001",
]


def record_changes(monkeypatch, allowed):
    """Lists renames (by the new name) and removals; kills before one more than allowed."""
    done = []

    def watch(kind):
        change = getattr(tf.io.gfile, kind)

        def watched(*paths, **options):
            if len(done) == allowed:
                raise Killed
            change(*paths, **options)
            done.append(f"{kind} {os.path.basename(paths[-1])}")

        monkeypatch.setattr(tf.io.gfile, kind, watched)

    watch("rename")
    watch("remove")
    return done


def bundle_files(*steps):
    parts = ("data-00000-of-00001", "index")
    return [f"model.ckpt-{step}.{part}" for step in steps for part in parts]


@pytest.mark.parametrize("allowed", range(len(CHANGES) + 1))
def test_killed_within_a_save_there_is_a_whole_checkpoint(
    tmp_path, monkeypatch, allowed
):
    directory = str(tmp_path)
    for step in (1, 2):
        checkpoint.save(directory, step, tensors(step), keep=2)
    with monkeypatch.context() as patch:
        done = record_changes(patch, allowed)
        if allowed < len(CHANGES):
            with pytest.raises(Killed):
                checkpoint.save(directory, 3, tensors(3), keep=2)
        else:
            checkpoint.save(directory, 3, tensors(3), keep=2)
    assert done == CHANGES[:allowed]

    whole = ([1, 2], [1, 2], [1, 2, 3], [1, 2, 3], [2, 3], [2, 3])[allowed]
    prefix, found = checkpoint.newest(directory)
    assert prefix == f"{directory}/model.ckpt-{whole[-1]}"
    assert found.keys() == tensors().keys()
    for name, value in tensors(whole[-1]).items():
        np.testing.assert_array_equal(found[name], value)
    # Others go by the state file: what it names is whole too.
    named = checkpoint.read(tf.train.latest_checkpoint(directory))
    assert named["global_step"] == (2 if allowed < 3 else 3)

    checkpoint.prepare(directory)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", *bundle_files(*whole)]
    for step in range(whole[-1] + 1, 5):
        checkpoint.save(directory, step, tensors(step), keep=2)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", *bundle_files(3, 4)]


@pytest.mark.parametrize("part", [".index", ".data-00000-of-00001"])
@pytest.mark.parametrize("keep", [0, 20, None])
def test_damaged_checkpoint_is_refused_and_passed_over(tmp_path, capsys, part, keep):
    directory = str(tmp_path)
    older = checkpoint.save(directory, 1, tensors(1), keep=5)
    newer = checkpoint.save(directory, 2, tensors(2), keep=5)
    damage(newer, part, keep)
    with pytest.raises(UserError, match="model.ckpt-2: the checkpoint is damaged"):
        checkpoint.load(variables(), newer)
    prefix, found = checkpoint.newest(directory)
    assert (prefix, found["global_step"]) == (older, 1)
    assert "model.ckpt-2: the checkpoint is damaged" in capsys.readouterr().err
    damage(older, part, keep)
    with pytest.raises(UserError, match="no checkpoint of the run is whole"):
        checkpoint.newest(directory)


def test_missing_data_file_is_refused(tmp_path):
    prefix = checkpoint.save(str(tmp_path), 1, tensors(), keep=5)
    os.remove(f"{prefix}.data-00000-of-00001")
    with pytest.raises(UserError, match="damaged or incomplete"):
        checkpoint.load(variables(), prefix)


def test_going_back_keeps_what_is_saved_after(tmp_path):
    # 1 is whole, 9 damaged: keep=1 must drop 1 for 5, not 5 for the damaged 9.
    for step in (1, 9):
        checkpoint.save(str(tmp_path), step, tensors(step), keep=5)
    checkpoint.save(str(tmp_path), 5, tensors(5), keep=1)
    assert checkpoint.steps(str(tmp_path)) == [5, 9]


@pytest.mark.parametrize(
    "ending", ["", ".index", ".data-00000-of-00001", ".meta", "/directory"]
)
def test_path_may_be_prefix_file_or_directory(ending):
    prefix = os.path.join(GOLDEN, "bert_model.ckpt")
    path = GOLDEN if ending == "/directory" else prefix + ending
    assert checkpoint.resolve(path) == prefix


def test_path_that_leaves_a_choice_is_refused(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such checkpoint"):
        checkpoint.resolve(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="matches none"):
        checkpoint.resolve(str(tmp_path))
    for step in (1, 2):
        checkpoint.save(str(tmp_path), step, tensors(), keep=5)
    os.remove(tmp_path / "checkpoint")
    with pytest.raises(UserError, match="model.ckpt-1.index, model.ckpt-2.index"):
        checkpoint.resolve(str(tmp_path))


def test_load_reports_what_matched(tmp_path):
    prefix = checkpoint.save(str(tmp_path), 5, tensors(5), keep=5)
    model = variables()
    report = checkpoint.load(model, prefix, required="bert/")
    np.testing.assert_array_equal(model["bert/dense/kernel"], KERNEL + 5)
    np.testing.assert_array_equal(model["bert/dense/bias"], [0, 0, 0])
    np.testing.assert_array_equal(model["cls/output_bias"], [7, 7])
    assert str(report) == (
        f"{prefix}: 2 of 3 variables matched\n"
        "  left at their initial value (1): cls/output_bias\n"
        "  unused in the checkpoint (2): global_step, */adam_* x 1"
    )


def test_mismatches_are_all_listed_and_nothing_is_set(tmp_path):
    wrong = tensors() | {
        "bert/dense/kernel": np.zeros((2, 4), np.float32),
        "bert/dense/bias": np.zeros(4, np.float32),
        "cls/output_bias": np.zeros(2, np.float32),
    }
    prefix = checkpoint.save(str(tmp_path), 1, wrong, keep=5)
    model = variables()
    with pytest.raises(UserError) as error:
        checkpoint.load(model, prefix)
    assert "bert/dense/bias is [4] in the checkpoint and [3] in the model" in str(
        error.value
    )
    assert "bert/dense/kernel is [2,4] in the checkpoint and [2,3]" in str(error.value)
    np.testing.assert_array_equal(model["cls/output_bias"], [7, 7])


def test_required_variables_must_be_there(tmp_path):
    some = {"bert/dense/bias": np.zeros(3, np.float32)}
    prefix = checkpoint.save(str(tmp_path), 1, some, keep=5)
    with pytest.raises(UserError, match="not in the checkpoint: bert/dense/kernel;"):
        checkpoint.load(variables(), prefix, required="bert/")
    checkpoint.load(variables(), prefix)  # another head may do without
    other = checkpoint.save(str(tmp_path), 2, {"x": np.zeros(3)}, keep=5)
    with pytest.raises(UserError, match="all variables of the model"):
        checkpoint.load(variables(), other)


def test_resuming_needs_every_variable_and_slot(tmp_path):
    have = tensors()
    model = {name: tf.Variable(value) for name, value in have.items()}
    checkpoint.check_complete("x", model, have)
    with pytest.raises(UserError, match="global_step is missing"):
        checkpoint.check_complete("x", {}, {})
    del have["bert/dense/kernel/adam_m"]
    with pytest.raises(UserError, match="bert/dense/kernel/adam_m is missing"):
        checkpoint.check_complete("x", model, have)


def test_run_goes_on_with_the_settings_it_began_with(tmp_path):
    directory = str(tmp_path)
    checkpoint.note_settings(directory, {"seed": 1, "steps": 10, "text": "a" * 64})
    # Nothing was learned yet: the run may still begin otherwise.
    checkpoint.note_settings(directory, {"seed": 2, "steps": 10, "text": "a" * 64})
    checkpoint.save(directory, 1, tensors(), keep=5)
    checkpoint.note_settings(directory, {"seed": 2, "steps": 10, "text": "a" * 64})
    message = "seed was 2 and is 1; steps was 10 and is 20; text has changed; choose"
    with pytest.raises(UserError, match=message):
        checkpoint.note_settings(directory, {"seed": 1, "steps": 20, "text": "b" * 64})


def test_released_checkpoint_is_read_whole():
    released = checkpoint.read(checkpoint.resolve(GOLDEN))
    assert len(released) == 62
    assert released["cls/predictions/output_bias"].shape == (3000,)


def test_unwritable_directory_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="model.ckpt-1: cannot be read or written"):
        checkpoint.save(str(tmp_path / "file"), 1, tensors(), keep=5)
