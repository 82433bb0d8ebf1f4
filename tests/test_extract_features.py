"""extract_features.py: the release's features, sentence vectors, formats, places."""

import gzip
import io
import json
import os
import pathlib
import re
import shutil
import sys

import h5py
import numpy as np
import pytest

from training.queries import feature_files
from errors import UserError
from files import local
from tests import jobs
from tests.features import (
    GOLDEN,
    HUGGING_FACE,
    MODEL,
    assert_close,
    flags,
    keys_of,
    lines_of,
    numbers,
    run,
    vectors,
    write,
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What comes of the flags above, as text."""
    with jobs.untraced():
        return run(tmp_path_factory.mktemp("released")).read_text()


# --- the release's file --------------------------------------------------------------


@pytest.mark.without_family
def test_features_equal_the_release(tmp_path, capsys):
    found = lines_of(run(tmp_path))
    expected = lines_of(GOLDEN / "features" / "features.jsonl")
    assert [keys_of(line) for line in found] == [keys_of(line) for line in expected]
    for line, golden in zip(found, expected, strict=True):
        assert_close(vectors(line), vectors(golden))
    # At most six decimals, and the release's spacing.
    text = (tmp_path / "output").read_text()
    assert max(map(len, re.findall(r"\.(\d+)[,\]]", text))) == 6
    golden_text = (GOLDEN / "features" / "features.jsonl").read_text()
    assert text[:60] == golden_text[:60]
    said = capsys.readouterr()
    assert said.out == ""
    assert "55 of 55 variables matched" in said.err
    assert "output: features of 4 texts, 76 tokens including special ones" in said.err


def test_commands_of_the_release_run_in_a_pipe(tmp_path):
    given = flags(tmp_path, batch_size=8, use_tpu=False)
    del given["layers"]
    given |= {"do_lower_case": True, "use_one_hot_embeddings": True, "num_tpu_cores": 8}
    given |= {"input_file": "-", "output_file": "-"}
    sent = (GOLDEN / "features" / "input.txt").read_text()
    done = jobs.finished(jobs.command("extract_features.py", given), input=sent)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1, 2, 3]
    # The last four of its three layers.
    indices = [layer["index"] for layer in lines[0]["features"][0]["layers"]]
    assert indices == [-1, -2, -3]


def test_a_shells_file_keeps_what_it_holds(plain, tmp_path, monkeypatch, untraced):
    (tmp_path / "all").write_text("before\n")
    with open(tmp_path / "all", "a") as file:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", file)
            run(tmp_path, output_file="-")
            file.flush()
        # What /dev/stdout leads to, until it is given back.
        stdout = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            run(tmp_path, output_file="/dev/stdout")
        finally:
            os.dup2(stdout, 1)
            os.close(stdout)
    assert (tmp_path / "all").read_text() == "before\n" + 2 * plain


def test_layers_are_taken_from_either_end(plain, tmp_path, untraced):
    first, last = lines_of(run(tmp_path, layers=[0, 2]))[0]["features"][0]["layers"]
    from_end = json.loads(plain.splitlines()[0])["features"][0]["layers"]
    assert [x["index"] for x in (first, last, *from_end)] == [0, 2, -1, -2, -3]
    assert [last["values"], first["values"]] == [x["values"] for x in from_end[::2]]


def test_odd_lines(tmp_path, untraced):
    texts = write(tmp_path, "", "a ||| b ||| c", "x |||", "||| y", "\ta\u2028b ||| c ")
    found = lines_of(run(tmp_path, input_file=texts, layers=[-1]))
    tokens = [" ".join(f["token"] for f in line["features"]) for line in found]
    assert tokens == [
        "[CLS] [SEP]",
        "[CLS] a | | | b [SEP] c [SEP]",
        "[CLS] x | | | [SEP]",
        "[CLS] | | | y [SEP]",
        "[CLS] a b [SEP] c [SEP]",
    ]


def test_texts_are_cut_off_as_in_the_release_and_counted(tmp_path, capsys, untraced):
    texts = write(tmp_path, "a b c d e f g", "a b c d e ||| f g h", "a b c d e f")
    found = lines_of(run(tmp_path, input_file=texts, max_seq_length=8, layers=[-1]))
    tokens = [" ".join(f["token"] for f in line["features"]) for line in found]
    assert tokens == [
        "[CLS] a b c d e f [SEP]",
        "[CLS] a b c [SEP] f g [SEP]",
        "[CLS] a b c d e f [SEP]",
    ]
    assert (
        "warning: cut off 2 texts at --max_seq_length=8; --doc_stride reads them"
        in capsys.readouterr().err
    )


# --- sentence vectors ----------------------------------------------------------------


@pytest.mark.exhaustive
def test_pooled_vectors_come_from_the_tokens_and_go_to_both_formats(tmp_path, untraced):
    texts = write(tmp_path, *numbers(20), "a b ||| c d e")
    changes = {"input_file": texts, "layers": [-1, 1], "batch_size": 3}
    changes |= {"max_seq_length": 16}
    tokens = [vectors(line) for line in lines_of(run(tmp_path, **changes))]
    for pooling, expected in (
        ("mean", [values.mean(axis=1) for values in tokens]),
        ("cls", [values[:, 0] for values in tokens]),
    ):
        found = lines_of(run(tmp_path, pooling=pooling, **changes))
        assert [line["linex_index"] for line in found] == list(range(21))
        for line, values in zip(found, expected, strict=True):
            assert list(line) == ["linex_index", "layers"]
            assert [layer["index"] for layer in line["layers"]] == [-1, 1]
            assert_close([layer["values"] for layer in line["layers"]], values)
    with h5py.File(
        run(tmp_path, pooling="cls", output_format="hdf5", **changes)
    ) as file:
        assert sorted(file) == ["layer_-1", "layer_1"]
        for index, name in enumerate(["layer_-1", "layer_1"]):
            values = [line["layers"][index]["values"] for line in found]
            assert_close(file[name][:], values)


def test_pooling_takes_the_last_layer_by_default(tmp_path, untraced):
    found = lines_of(run(tmp_path, pooling="mean", layers=None))
    assert [[x["index"] for x in line["layers"]] for line in found] == [[-1]] * 4


# --- HDF5 ----------------------------------------------------------------------------


def test_hdf5_holds_the_same_features(tmp_path, monkeypatch, untraced):
    monkeypatch.setattr(feature_files, "_HDF5_CHUNK", 2000)  # several chunks
    texts = write(tmp_path, "", "\u00e9", *numbers(30))
    changes = {"input_file": texts, "layers": [-1, 0], "max_seq_length": 10}
    changes |= {"doc_stride": 4}
    expected = lines_of(run(tmp_path, **changes))
    path = run(tmp_path, output_format="hdf5", **changes)
    with h5py.File(path) as file:
        assert sorted(file) == [
            "layer_-1",
            "layer_0",
            "offsets",
            "token_ids",
            "vocabulary",
        ]
        offsets = file["offsets"][:]
        vocabulary = file["vocabulary"].asstr()[:]
        assert len(offsets) == len(expected) + 1
        assert len(file["layer_0"]) == len(file["token_ids"]) == offsets[-1]
        for i, line in enumerate(expected):
            tokens = slice(offsets[i], offsets[i + 1])
            assert vocabulary[file["token_ids"][tokens]].tolist() == [
                feature["token"] for feature in line["features"]
            ]
            values = [file["layer_-1"][tokens], file["layer_0"][tokens]]
            assert_close(np.stack(values), vectors(line))
            assert values[0].dtype == np.float32


# --- where things come from ----------------------------------------------------------


def test_everything_may_lie_beside_the_weights(plain, tmp_path, untraced):
    changes = {"vocab_file": None, "bert_config_file": None}
    assert run(tmp_path, **changes).read_text() == plain
    assert run(tmp_path, init_checkpoint=str(MODEL), **changes).read_text() == plain


def hugging_face(folder):
    """A Hugging Face directory with the part of a vocabulary that its model has."""
    shutil.copytree(HUGGING_FACE, folder / "model")
    tokens = (MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tokens = [*tokens[:1195], "lobster", "jim", "|", ".", "?"]
    (folder / "model" / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    return folder / "model"


def test_hugging_face_directory_is_all_it_takes(tmp_path, untraced):
    model = hugging_face(tmp_path)
    changes = {
        "init_checkpoint": str(model),
        "vocab_file": None,
        "bert_config_file": None,
        "layers": [-1],
    }
    found = lines_of(run(tmp_path, **changes))
    assert [len(line["features"][0]["layers"][0]["values"]) for line in found] == [
        48
    ] * 4
    assert (
        lines_of(run(tmp_path, **changes | {"bert_config_file": str(model)})) == found
    )
    (model / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(UserError, match="pass --do_lower_case=false"):
        run(tmp_path, do_lower_case=True, **changes)
    assert lines_of(run(tmp_path, **changes)) != found  # text keeps its capitals


def test_text_is_held_to_what_a_fine_tuned_model_learned(tmp_path):
    model = shutil.copytree(MODEL, tmp_path / "model")
    shuffled = (MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    shuffled[2000], shuffled[2001] = shuffled[2001], shuffled[2000]
    other = tmp_path / "other.txt"
    other.write_text("\n".join(shuffled) + "\n", encoding="utf-8")
    source = {"init_checkpoint": str(model / "bert_model.ckpt")}
    with pytest.raises(UserError, match="other.txt: token 2000 is .*, but .*vocab.txt"):
        run(tmp_path, vocab_file=str(other), **source)
    (model / "task.json").write_text('{"do_lower_case": false}')
    with pytest.raises(
        UserError, match="task.json: the model was trained with another --do_lower"
    ):
        run(tmp_path, do_lower_case=True, **source)


def test_links_stay_and_what_a_killed_process_left_goes(tmp_path, untraced):
    (tmp_path / "kept").mkdir()
    (tmp_path / "output").symlink_to(tmp_path / "kept" / "features")
    own, process = local.temporary_name(f"{tmp_path}/kept/features"), os.getpid()
    left = pathlib.Path(own.replace(f"~{process}", "~99999999"))
    left.write_text("half")
    others = [
        own.replace(f"~{process}", f"~{os.getppid()}"),
        f"{tmp_path}/kept/a.tmp-9",
    ]
    for other in others:
        pathlib.Path(other).write_text("of a process that runs, and of a user")
    found = run(tmp_path, layers=[-1])
    assert all(map(os.path.exists, others))
    assert found.is_symlink() and not left.exists()
    assert len(lines_of(tmp_path / "kept" / "features")) == 4


def test_standard_input_and_gzip(plain, tmp_path, monkeypatch, untraced):
    content = (GOLDEN / "features" / "input.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert run(tmp_path, input_file="-").read_text() == plain
    (tmp_path / "input.gz").write_bytes(gzip.compress(content))
    packed = str(tmp_path / "input.gz")
    assert run(tmp_path, input_file=packed).read_text() == plain
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n")))
    with pytest.raises(UserError, match="standard input:2: not UTF-8 .byte 0xff"):
        run(tmp_path, input_file="-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(UserError, match="-: contains no text"):
        run(tmp_path, input_file="-")
    assert (tmp_path / "output").read_text() == plain
