"""Checkpoints: the format, what survives a kill, what is said of what does not fit."""

import filecmp
import os
import pathlib
import shutil

import numpy as np
import pytest

import tests
from training.backend import tf
from training.storage import checkpoint, loading, weight_formats
from training.storage.folder import FOUND, Folder
from training.storage.source import Source
from errors import UserError
from files import local
from tests.killed import Killed

GOLDEN = str(tests.GOLDEN / "checkpoint")
ENDED = 4194305  # no process has this number
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


def bundle_files(*steps):
    parts = ("data-00000-of-00001", "index")
    return [f"model.ckpt-{step}.{part}" for step in steps for part in parts]


def names_in(folder):
    """What is in a folder, without the list of what was found there."""
    return sorted(set(os.listdir(folder)) - {FOUND})


def test_tensorflow_finds_and_reads_what_is_saved(tmp_path):
    for step in (3, 12):
        checkpoint.save(Folder.open(str(tmp_path)), step, tensors(step), keep=5)
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
    first = checkpoint.save(Folder.open(str(tmp_path / "a")), 1, tensors(), keep=1)
    second = checkpoint.save(
        Folder.open(str(tmp_path / "b")), 1, dict(reversed(tensors().items())), keep=1
    )
    for part in (".index", ".data-00000-of-00001"):
        assert filecmp.cmp(first + part, second + part, shallow=False)


def test_oldest_checkpoints_are_dropped(tmp_path):
    for step in (1, 2, 10):
        checkpoint.save(Folder.open(str(tmp_path)), step, tensors(step), keep=2)
    assert Folder.open(str(tmp_path)).steps == [2, 10]
    assert names_in(tmp_path) == ["checkpoint", *bundle_files(10, 2)]
    checkpoint.save(Folder.open(str(tmp_path)), 11, tensors(11), keep=0)
    assert Folder.open(str(tmp_path)).steps == [2, 10, 11]


def left_half_written(prefix, host=None, process=ENDED):
    """Files as a process leaves them that was killed while it wrote a checkpoint."""
    name = local.temporary_name(prefix).replace(f"~{os.getpid()}", f"~{process}")
    name = name.replace(f"~{local.host()}~", f"~{host or local.host()}~")
    paths = [
        pathlib.Path(name + end)
        for end in (".index", ".data-00000-of-00001.tempstate12345")
    ]
    for path in paths:
        path.write_text("x")
    return paths


def test_half_written_checkpoints_are_not_read_and_are_removed(tmp_path):
    directory = str(tmp_path)
    prefix = checkpoint.save(Folder.open(directory), 1, tensors(1), keep=5)
    left_half_written(f"{directory}/model.ckpt-2")
    left_half_written(f"{directory}/model.ckpt-2", host="elsewhere")
    # Killed before .index had its name, and before the first state file.
    (tmp_path / "model.ckpt-3.data-00000-of-00001").write_text("x")
    os.remove(tmp_path / "checkpoint")
    assert checkpoint.newest(Folder.open(directory))[0] == prefix
    assert Source.open(directory).prefix == prefix
    Folder.open(directory).clear()
    assert names_in(tmp_path) == bundle_files(1)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """A power cut must not leave a name without the data."""
    done = []
    fsync, rename = os.fsync, tf.io.gfile.rename

    def watched_fsync(file):
        done.append(("sync", os.fstat(file).st_ino))
        fsync(file)

    def watched_rename(source, target, **options):
        done.append(("rename", os.stat(source).st_ino))
        rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(tf.io.gfile, "rename", watched_rename)
    checkpoint.save(Folder.open(str(tmp_path)), 1, tensors(1), keep=5)
    renamed = [number for kind, number in done if kind == "rename"]
    assert len(renamed) == 2
    for number in renamed:
        assert done.index(("sync", number)) < done.index(("rename", number))


# What saving 3 after 1 and 2 with keep=2 does to final names, in this order; and which
# checkpoints are whole then.
CHANGES = {
    "rename model.ckpt-3.data-00000-of-00001": [1, 2],
    "rename model.ckpt-3.index": [1, 2, 3],
    "replace checkpoint": [1, 2, 3],
    "remove model.ckpt-1.index": [2, 3],
    "remove model.ckpt-1.data-00000-of-00001": [2, 3],
}


def record_changes(monkeypatch, allowed):
    """Lists renames (by the new name) and removals; kills before one more than allowed."""
    done = []

    def watch(module, kind):
        change = getattr(module, kind)

        def watched(*paths, **options):
            if len(done) == allowed:
                raise Killed
            change(*paths, **options)
            done.append(f"{kind} {os.path.basename(paths[-1])}")

        monkeypatch.setattr(module, kind, watched)

    watch(tf.io.gfile, "rename")
    watch(tf.io.gfile, "remove")
    watch(os, "replace")
    return done


@pytest.mark.parametrize("allowed", range(len(CHANGES) + 1))
def test_killed_within_a_save_there_is_a_whole_checkpoint(
    tmp_path, monkeypatch, allowed
):
    directory = str(tmp_path)
    for step in (1, 2):
        checkpoint.save(Folder.open(directory), step, tensors(step), keep=2)
    with monkeypatch.context() as patch:
        done = record_changes(patch, allowed)
        if allowed < len(CHANGES):
            with pytest.raises(Killed):
                checkpoint.save(Folder.open(directory), 3, tensors(3), keep=2)
        else:
            checkpoint.save(Folder.open(directory), 3, tensors(3), keep=2)
    assert done == [*CHANGES][:allowed]

    whole = [[1, 2], *CHANGES.values()][allowed]
    prefix, found = checkpoint.newest(Folder.open(directory))
    assert prefix == f"{directory}/model.ckpt-{whole[-1]}"
    assert found.keys() == tensors().keys()
    for name, value in tensors(whole[-1]).items():
        np.testing.assert_array_equal(found[name], value)
    # Others go by the state file: what it names is whole too.
    named = Source.open(tf.train.latest_checkpoint(directory)).read()
    assert named["global_step"] == (2 if allowed < 3 else 3)

    Folder.open(directory).clear()
    # The run may be finished: it is not cleaned by another save.
    assert names_in(tmp_path) == ["checkpoint", *bundle_files(*whole)]
    for step in range(whole[-1] + 1, 5):
        checkpoint.save(Folder.open(directory), step, tensors(step), keep=2)
    assert names_in(tmp_path) == ["checkpoint", *bundle_files(3, 4)]


@pytest.mark.parametrize("part", [".index", ".data-00000-of-00001"])
@pytest.mark.parametrize("keep", [0, 20, None])
def test_damaged_checkpoint_is_refused_and_passed_over(tmp_path, capsys, part, keep):
    directory = str(tmp_path)
    older = checkpoint.save(Folder.open(directory), 1, tensors(1), keep=5)
    newer = checkpoint.save(Folder.open(directory), 2, tensors(2), keep=5)
    damage(newer, part, keep)
    with pytest.raises(UserError, match="model.ckpt-2: the checkpoint is damaged"):
        Source.open(newer).load(variables())
    prefix, found = checkpoint.newest(Folder.open(directory))
    assert (prefix, found["global_step"]) == (older, 1)
    assert "model.ckpt-2: the checkpoint is damaged" in capsys.readouterr().err
    damage(older, part, keep)
    with pytest.raises(UserError, match="no checkpoint of the run is intact"):
        checkpoint.newest(Folder.open(directory))


def test_a_checkpoint_that_is_dropped_while_it_is_read_is_passed_over(
    tmp_path, monkeypatch, capsys
):
    """As where a training runs beside an evaluation."""
    directory = str(tmp_path)
    checkpoint.save(Folder.open(directory), 1, tensors(1), keep=1)
    read = weight_formats.Bundle.read

    def read_late(bundle):
        if bundle.path.endswith("-1"):
            checkpoint.save(Folder.open(directory), 2, tensors(2), keep=1)
        return read(bundle)

    monkeypatch.setattr(weight_formats.Bundle, "read", read_late)
    assert checkpoint.newest(Folder.open(directory))[0] == f"{directory}/model.ckpt-2"
    assert capsys.readouterr().err == ""


def test_missing_data_file_is_refused(tmp_path):
    prefix = checkpoint.save(Folder.open(str(tmp_path)), 1, tensors(), keep=5)
    os.remove(f"{prefix}.data-00000-of-00001")
    with pytest.raises(UserError, match="damaged or incomplete"):
        Source.open(prefix).load(variables())


def test_going_back_keeps_what_is_saved_after(tmp_path):
    # 1 is whole, 9 damaged: keep=1 must drop 1 for 5, not 5 for the damaged 9.
    for step in (1, 9):
        checkpoint.save(Folder.open(str(tmp_path)), step, tensors(step), keep=5)
    checkpoint.save(Folder.open(str(tmp_path)), 5, tensors(5), keep=1)
    assert Folder.open(str(tmp_path)).steps == [5, 9]


@pytest.mark.parametrize(
    "ending", ["", ".index", ".data-00000-of-00001", ".meta", "/directory"]
)
def test_path_may_be_prefix_file_or_directory(ending):
    prefix = os.path.join(GOLDEN, "bert_model.ckpt")
    path = GOLDEN if ending == "/directory" else prefix + ending
    assert Source.open(path).prefix == prefix


def test_path_that_leaves_a_choice_is_refused(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such checkpoint"):
        Source.open(str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="matches nothing"):
        Source.open(str(tmp_path))
    for step in (1, 2):
        checkpoint.save(Folder.open(str(tmp_path)), step, tensors(), keep=5)
    os.remove(tmp_path / "checkpoint")
    with pytest.raises(UserError, match="model.ckpt-1.index, model.ckpt-2.index"):
        Source.open(str(tmp_path))


def test_layers_are_folded_under_their_own_names():
    names = [f"decoder/block_00{n}/layer_001/EncDecAttention/q" for n in range(2)]
    report = loading.LoadReport("a", [], names, [])
    assert "(2): decoder/block_*/layer_*/EncDecAttention/q x 2" in str(report)


def test_names_of_another_library_are_folded_by_their_first_parts():
    names = [f"transformer.block.{n}.q.weight" for n in range(9)]
    assert loading.list_names(names, 4) == "transformer.* x 9"


def test_load_reports_what_matched(tmp_path):
    prefix = checkpoint.save(Folder.open(str(tmp_path)), 5, tensors(5), keep=5)
    model = variables()
    report = Source.open(prefix).load(model, required="bert/")
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
    prefix = checkpoint.save(Folder.open(str(tmp_path)), 1, wrong, keep=5)
    model = variables()
    with pytest.raises(UserError) as error:
        Source.open(prefix).load(model)
    assert "bert/dense/bias is [4] in the checkpoint and [3] in the model" in str(
        error.value
    )
    assert "bert/dense/kernel is [2,4] in the checkpoint and [2,3]" in str(error.value)
    np.testing.assert_array_equal(model["cls/output_bias"], [7, 7])


def test_required_variables_must_be_there(tmp_path):
    some = {"bert/dense/bias": np.zeros(3, np.float32)}
    prefix = checkpoint.save(Folder.open(str(tmp_path)), 1, some, keep=5)
    with pytest.raises(UserError, match="not in the checkpoint: bert/dense/kernel;"):
        Source.open(prefix).load(variables(), required="bert/")
    Source.open(prefix).load(variables())  # another head may do without
    other = checkpoint.save(Folder.open(str(tmp_path)), 2, {"x": np.zeros(3)}, keep=5)
    with pytest.raises(UserError, match="all variables of the model"):
        Source.open(other).load(variables())


def test_resuming_needs_every_variable_and_slot(tmp_path):
    have = tensors()
    model = {name: tf.Variable(value) for name, value in have.items()}
    checkpoint.check_complete("x", model, have)
    with pytest.raises(UserError, match="global_step is missing"):
        checkpoint.check_complete("x", {}, {})
    del have["bert/dense/kernel/adam_m"]
    with pytest.raises(UserError, match="bert/dense/kernel/adam_m is missing"):
        checkpoint.check_complete("x", model, have)


@pytest.mark.parametrize(
    ("folder", "prefix"),
    [
        ("albert/base", "model.ckpt-best"),  # without a state file
        ("electra", "model.ckpt-0"),
    ],
)
def test_bundles_of_tensorflow_1_are_read_bit_for_bit(folder, prefix):
    path = tests.GOLDEN / folder
    source = Source.open(str(path)).prefix
    assert source == str(path / prefix)
    found = Source.open(source).read()
    with np.load(path / "weights.npz") as file:
        expected = dict(file)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_unwritable_directory_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: cannot be read or written"):
        checkpoint.save(Folder.open(str(tmp_path / "file")), 1, tensors(), keep=5)
