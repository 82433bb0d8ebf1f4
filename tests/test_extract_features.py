"""extract_features.py: the release's features, windows, sentence vectors, refusals."""

import collections
import gzip
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import sys

import h5py
import numpy as np
import pytest

import extract_features
import tests
from training import checkpoint, feature_files, features
from training.backend import tf
from extract_features import Options
from tests import jobs
from text.errors import UserError
from text.files import local
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.features import Counts, FeatureExtractor, encode, make_rows

ROOT = tests.ROOT
GOLDEN = ROOT / "tests" / "golden"
MODEL = GOLDEN / "checkpoint"
HUGGING_FACE = GOLDEN / "hf" / "pretraining"


def flags(folder, **changes):
    return {
        "input_file": str(GOLDEN / "features" / "input.txt"),
        "output_file": str(folder / "output"),
        "vocab_file": str(MODEL / "vocab.txt"),
        "bert_config_file": str(MODEL / "bert_config.json"),
        "init_checkpoint": str(MODEL / "bert_model.ckpt"),
        "layers": [-1, -2, -3],
        "max_seq_length": 32,
    } | changes


def run(folder, **changes):
    extract_features.main(Options(**flags(folder, **changes)))
    return folder / "output"


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(folder, *texts):
    path = folder / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(path)


def vectors(line):
    """float64 [layers, tokens, h] of one line of JSON."""
    features = line["features"]
    values = [[layer["values"] for layer in f["layers"]] for f in features]
    return np.array(values).transpose(1, 0, 2)


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def keys_of(line):
    """Everything but the numbers."""
    return (
        list(line),
        line["linex_index"],
        [
            (list(f), f["token"], [(list(x), x["index"]) for x in f["layers"]])
            for f in line["features"]
        ],
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What comes of the flags above, as text."""
    return run(tmp_path_factory.mktemp("released")).read_text()


# --- the release's file --------------------------------------------------------------


@pytest.mark.slow
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
    assert (
        "output: features of 4 texts, 76 tokens including [CLS] and [SEP]" in said.err
    )


@pytest.mark.slow
def test_commands_of_the_release_run_in_a_pipe(tmp_path):
    given = flags(tmp_path, layers=[-1, -2, -3], batch_size=8, use_tpu=False)
    given |= {"do_lower_case": True, "use_one_hot_embeddings": True, "num_tpu_cores": 8}
    given |= {"input_file": "-", "output_file": "-"}
    sent = (GOLDEN / "features" / "input.txt").read_text()
    done = jobs.finished(jobs.command("extract_features.py", given), input=sent)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1, 2, 3]


def test_a_shells_file_keeps_what_it_holds(plain, tmp_path, monkeypatch):
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


def test_hdf5_goes_down_no_pipe(tmp_path, capsys):
    with pytest.raises(UserError) as error:
        run(tmp_path, output_file="-", output_format="hdf5")
    assert str(error.value) == "-: HDF5 can only be written to a file; name one"
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_layers_are_taken_from_either_end(plain, tmp_path):
    first, last = lines_of(run(tmp_path, layers=[0, 2]))[0]["features"][0]["layers"]
    from_end = json.loads(plain.splitlines()[0])["features"][0]["layers"]
    assert [x["index"] for x in (first, last, *from_end)] == [0, 2, -1, -2, -3]
    assert [last["values"], first["values"]] == [x["values"] for x in from_end[::2]]


@pytest.mark.slow
def test_odd_lines(tmp_path):
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


@pytest.mark.slow
def test_texts_are_cut_off_as_in_the_release_and_counted(tmp_path, capsys):
    texts = write(tmp_path, "a b c d e f g", "a b c d e ||| f g h", "a b c d e f")
    found = lines_of(run(tmp_path, input_file=texts, max_seq_length=8, layers=[-1]))
    tokens = [" ".join(f["token"] for f in line["features"]) for line in found]
    assert tokens == [
        "[CLS] a b c d e f [SEP]",
        "[CLS] a b c [SEP] f g [SEP]",
        "[CLS] a b c d e f [SEP]",
    ]
    assert (
        "warning: 2 texts were cut off at --max_seq_length=8; --doc_stride reads them"
        in capsys.readouterr().err
    )


# --- batches -------------------------------------------------------------------------


def numbers(count, seed=0):
    """Texts of 0 to 20 words, in no order of length."""
    words = ["one", "two", "three", "lobster", "puppeteer", "unaffable", ","]
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, rng.integers(20))) for _ in range(count)]


@pytest.mark.slow
def test_batches_do_not_change_order_or_features(tmp_path):
    changes = {"input_file": write(tmp_path, *numbers(30)), "max_seq_length": 16}
    alone = lines_of(run(tmp_path, batch_size=1, **changes))
    together = lines_of(run(tmp_path, batch_size=7, **changes))
    assert [keys_of(x) for x in together] == [keys_of(x) for x in alone]
    for one, other in zip(together, alone, strict=True):
        assert_close(vectors(one), vectors(other))


@pytest.fixture(scope="module")
def tokenizer():
    return WordPiece(Vocabulary.load(str(MODEL / "vocab.txt")))


class Echo:
    """In the place of an encoder: a row's features are its ids; notes the shapes."""

    token_bytes = 1 << 20
    pooling = "none"
    strategy = tf.distribute.get_strategy()

    def __init__(self):
        self.shapes = collections.Counter()

    def __call__(self, batch):
        self.shapes[batch["input_ids"].shape] += 1
        return batch["input_ids"][None, :, :, None].astype(np.float32)


def test_endless_input_is_encoded_as_it_comes(tokenizer, tmp_path):
    """Memory cannot grow with the input, for only so much of it is ever read."""
    read = []

    def endless():
        for number in itertools.count():
            read.append(number)
            yield numbers(1, seed=number)[0]

    encoder = Echo()
    rows = make_rows(endless(), tokenizer, Options(**flags(tmp_path)), Counts())
    most_ahead = 0
    for number, (row, values) in enumerate(encode(rows, encoder, 32, 4)):
        (ids,) = map(tokenizer.encode, numbers(1, seed=number))
        assert row.input_ids[1:-1] == ids[:30]
        np.testing.assert_array_equal(values[0, :, 0], row.input_ids)
        most_ahead = max(most_ahead, len(read) - number)
        if number == 500:
            break
    # At most 256 MB of features wait: here 256 tokens, and what fills a batch of 4.
    assert 256 / 32 < most_ahead < 256 / 8
    # Few shapes.
    assert set(encoder.shapes) <= {(4, n) for n in (8, 16, 24, 32)}


def test_rows_of_like_length_share_a_batch(tokenizer, tmp_path):
    """Sentence vectors are small, so that 64 batches can be sorted at a time."""
    encoder = Echo()
    encoder.pooling = "cls"
    lines = iter(numbers(64 * 4 + 100))
    counts = Counts()
    rows = make_rows(lines, tokenizer, Options(**flags(tmp_path)), counts)
    for _ in itertools.islice(encode(rows, encoder, 32, 4), 64 * 4):
        pass
    assert len(list(lines)) == 100
    padded = sum(rows * length * n for (rows, length), n in encoder.shapes.items())
    assert padded / counts.tokens < 1.3


@pytest.mark.slow
def test_replicas_share_batches(tmp_path):
    """In a process of its own, for it needs two logical CPUs.

    It goes on with a wrong command, which says so in one line.
    """
    texts = write(tmp_path, *numbers(9))
    given = flags(tmp_path, input_file=texts, batch_size=4, layers=[-1])
    alone = lines_of(run(tmp_path, **given))
    program = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "import extract_features, tensorflow as tf\n"
        "cpu = tf.config.LogicalDeviceConfiguration()\n"
        "tf.config.set_logical_device_configuration(\n"
        "    tf.config.list_physical_devices('CPU')[0], [cpu, cpu])\n"
        "given = extract_features.Options(**json.loads(sys.argv[2]))\n"
        "extract_features.main(given)\n"
        "import runpy; sys.stderr.write('shared\\n'); sys.argv = sys.argv[3:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    given["distribution"] = "mirrored"
    line = [sys.executable, "-c", program, ROOT, json.dumps(given)]
    _, *wrong = jobs.command("extract_features.py", flags(tmp_path, layers=[-1, -4]))
    done = jobs.finished([*line, *wrong], cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    _, done_sharing, error = done.stderr.partition("shared\n")
    assert done_sharing and error.count("\n") == 1, done.stderr
    assert error.startswith("extract_features.py: error: --layers=-1,-4: there is no")
    shared = lines_of(tmp_path / "output")
    assert [keys_of(x) for x in shared] == [keys_of(x) for x in alone]
    for one, other in zip(shared, alone, strict=True):
        assert_close(vectors(one), vectors(other))


# --- windows -------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 5, 6, 7, 8, 9, 20, 61])
@pytest.mark.parametrize("stride", [1, 2, 3, 5, 6])
def test_windows_keep_every_token_once_and_deep_inside(
    tokenizer, tmp_path, length, stride
):
    given = Options(**flags(tmp_path, max_seq_length=8, doc_stride=stride))
    vocabulary = tokenizer.vocabulary
    words = [token for token in vocabulary.tokens if token.isalpha()][:length]
    ids = [vocabulary.ids[word] for word in words]
    counts = Counts()
    rows = list(make_rows([" ".join(words)], tokenizer, given, counts))
    assert counts == Counts(texts=1, tokens=length + 2, cut=0, windowed=int(length > 6))
    kept = [id for row in rows for id in row.input_ids[row.kept]]
    assert kept == [vocabulary.cls_id, *ids, vocabulary.sep_id]
    assert [row.ends_text for row in rows] == [False] * (len(rows) - 1) + [True]
    windows = [row.input_ids[1:-1] for row in rows]
    assert all(len(window) == min(6, length) for window in windows)
    steps = np.diff([ids.index(window[0]) for window in windows]) if length else []
    assert all(0 < step <= stride for step in steps)

    def depth(window, id):
        """Tokens to the nearer end; the ends of the text are none."""
        left = window.index(id) if window[0] != ids[0] else length
        right = len(window) - 1 - window.index(id) if window[-1] != ids[-1] else length
        return min(left, right)

    for row, window in zip(rows, windows, strict=True):
        for id in set(row.input_ids[row.kept]) & set(ids):
            assert depth(window, id) == max(
                depth(other, id) for other in windows if id in other
            )


@pytest.mark.slow
def test_features_of_windows_are_those_of_their_texts(tmp_path, capsys):
    """Words 0-5, 3-8 and 4-9: the middle of what two share divides them."""
    words = "one two three lobster jim a b c d e".split()
    long, first, second, third = (
        " ".join(part) for part in (words, words[:6], words[3:9], words[4:])
    )
    texts = write(tmp_path, long, first, second, third)
    changes = {"input_file": texts, "max_seq_length": 8, "layers": [-1, 0]}
    whole, *parts = lines_of(run(tmp_path, doc_stride=3, **changes))
    assert [f["token"] for f in whole["features"]] == ["[CLS]", *words, "[SEP]"]
    expected = np.concatenate(
        [
            vectors(parts[0])[:, :6],  # [CLS] and words 0 to 4
            vectors(parts[1])[:, 3:5],  # 5 and 6
            vectors(parts[2])[:, 4:],  # 7 to 9 and [SEP]
        ],
        axis=1,
    )
    assert_close(vectors(whole), expected)
    said = capsys.readouterr().err
    assert "1 texts were longer than a row and were read in windows" in said
    assert "cut off" not in said
    # Pooled, every token counts once.
    found = lines_of(run(tmp_path, doc_stride=3, pooling="mean", **changes))
    for line, tokens in zip(found, (whole, *parts), strict=True):
        values = [layer["values"] for layer in line["layers"]]
        assert_close(values, vectors(tokens).mean(axis=1))


@pytest.mark.slow
def test_pairs_are_cut_off_even_with_windows(tmp_path, capsys):
    texts = write(tmp_path, "a b c d e ||| f g h")
    (line,) = lines_of(run(tmp_path, input_file=texts, max_seq_length=8, doc_stride=3))
    assert len(line["features"]) == 8
    assert "1 texts were cut off at --max_seq_length=8 (pairs have no windows)" in (
        capsys.readouterr().err
    )


# --- sentence vectors ----------------------------------------------------------------


@pytest.mark.slow
def test_pooled_vectors_come_from_the_tokens_and_go_to_both_formats(tmp_path):
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


def test_pooling_takes_the_last_layer_by_default(tmp_path):
    found = lines_of(run(tmp_path, pooling="mean", layers=None))
    assert [[x["index"] for x in line["layers"]] for line in found] == [[-1]] * 4


# --- HDF5 ----------------------------------------------------------------------------


@pytest.mark.slow
def test_hdf5_holds_the_same_features(tmp_path, monkeypatch):
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


@pytest.mark.slow
def test_everything_may_lie_beside_the_weights(plain, tmp_path):
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


@pytest.mark.slow
def test_hugging_face_directory_is_all_it_takes(tmp_path):
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
        run(tmp_path, **changes)


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
        run(tmp_path, **source)


def test_links_stay_and_what_a_killed_process_left_goes(tmp_path):
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


def test_features_equal_hugging_face():
    with np.load(GOLDEN / "hf" / "pretraining_outputs.npz") as file:
        values = dict(file)
    config = checkpoint.read_config(str(HUGGING_FACE))
    encoder = FeatureExtractor(tf.distribute.get_strategy(), config, [-1], "none")
    weights = {v.path: v for v in encoder.model.variables}
    checkpoint.load(weights, str(HUGGING_FACE), encoder.model.required)
    batch = {k: values[k] for k in ("input_ids", "input_mask", "segment_ids")}
    (features,) = encoder(batch | {"kept": batch["input_mask"]})
    assert_close(features, values["sequence_output"])


@pytest.mark.slow
def test_standard_input_and_gzip(plain, tmp_path, monkeypatch):
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


# --- bad input -----------------------------------------------------------------------


def without_encoder(folder):
    heads = {"cls/predictions/output_bias": np.zeros(3000, np.float32)}
    return {"init_checkpoint": checkpoint.save(str(folder / "heads"), 1, heads, 1)}


def not_finite(folder):
    weights = checkpoint.read(str(MODEL / "bert_model.ckpt"))
    weights["bert/encoder/layer_1/output/dense/bias"][3] = np.nan
    return {"init_checkpoint": checkpoint.save(str(folder / "nan"), 1, weights, 1)}


def cut_checkpoint(folder):
    for path in MODEL.glob("bert_model.*"):
        shutil.copy(path, folder)
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:100_000])
    return {"init_checkpoint": str(folder / "bert_model.ckpt")}


def released(folder):
    """A model under the name of one that was trained on cased text."""
    directory = folder / "cased_L-12_H-768_A-12"
    shutil.copytree(MODEL, directory)
    return {"init_checkpoint": str(directory / "bert_model.ckpt")}


def file_with(name, content, flag):
    def make(folder):
        (folder / name).write_bytes(content)
        return {flag: str(folder / name)}

    return make


def larger_vocabulary(folder):
    content = (MODEL / "vocab.txt").read_bytes()
    more = "".join(f"extra{i}\n" for i in range(100)).encode()
    return file_with("vocab.txt", content + more, "vocab_file")(folder)


def output_is_input(folder):
    return {"input_file": write(folder, "a"), "output_file": str(folder / "texts.txt")}


def output_under_a_file(folder):
    (folder / "file").write_text("")
    return {"output_file": str(folder / "file" / "output")}


def another_config(folder):
    config = json.loads((MODEL / "bert_config.json").read_text())
    content = json.dumps(config | {"intermediate_size": 128}).encode()
    return file_with("config.json", content, "bert_config_file")(folder)


BAD = {
    "no input": (
        lambda folder: {"input_file": str(folder / "nowhere.txt")},
        "no file matches '.*nowhere.txt'",
    ),
    "input is a folder": (
        lambda folder: {"input_file": str(folder)},
        "is a folder",
    ),
    "several inputs": (
        lambda folder: {"input_file": str(GOLDEN / "pretraining" / "*.tfrecord")},
        "tfrecord: matches 2 files; name one",
    ),
    "not UTF-8": (
        file_with("latin1.txt", b"one\ncaf\xe9\n", "input_file"),
        "latin1.txt:2: not UTF-8 .byte 0xe9",
    ),
    "damaged gzip": (
        file_with("texts.gz", gzip.compress(b"a\n" * 9999)[:-9], "input_file"),
        "texts.gz:.*: the compressed data is damaged",
    ),
    "empty input": (
        file_with("empty.txt", b"", "input_file"),
        "empty.txt: contains no text; write one per line",
    ),
    "no vocabulary": (
        lambda folder: {"vocab_file": str(folder / "nowhere.txt")},
        "nowhere.txt: no such file; pass the model's --vocab_file",
    ),
    "no vocabulary at all": (
        file_with("words.txt", b"one\ntwo\n", "vocab_file"),
        r"words.txt: no line is \[PAD\]",
    ),
    "larger vocabulary": (
        larger_vocabulary,
        "vocab.txt: 3041 tokens, more than vocab_size=3000",
    ),
    "no config": (
        lambda folder: {"bert_config_file": str(folder / "nowhere.json")},
        "nowhere.json: no such file",
    ),
    "config is no JSON": (
        file_with("config.json", b"{", "bert_config_file"),
        "config.json:1: not JSON",
    ),
    "config of another model": (
        another_config,
        "check --bert_config_file: bert/encoder/layer_0/intermediate/dense/bias is",
    ),
    "no checkpoint": (
        lambda folder: {"init_checkpoint": str(folder / "nowhere.ckpt")},
        "nowhere.ckpt: no such checkpoint",
    ),
    "checkpoint without encoder": (
        without_encoder,
        "not in the checkpoint: all variables of the model",
    ),
    "cut checkpoint": (cut_checkpoint, "the checkpoint is damaged or incomplete"),
    "checkpoint that diverged": (not_finite, "the features are not finite"),
    "layer too far back": (
        lambda folder: {"layers": None},
        "--layers=-1,-2,-3,-4: there is no layer -4; the model has 3, from 0 to 2",
    ),
    "layer too high": (lambda folder: {"layers": [3]}, "there is no layer 3"),
    "layer twice": (lambda folder: {"layers": [-1, -1]}, "each of them once"),
    "no layer": (lambda folder: {"layers": []}, "list layers"),
    "too long": (
        lambda folder: {"max_seq_length": 129},
        "--max_seq_length=129: the model has only max_position_embeddings=128",
    ),
    "too short": (
        lambda folder: {"max_seq_length": 2},
        "--max_seq_length=2: must be at least 3",
    ),
    "windows with gaps": (
        lambda folder: {"doc_stride": 31},
        "--doc_stride=31: must be from 1 to 30",
    ),
    "no batch": (
        lambda folder: {"batch_size": 0},
        "--batch_size=0: must be at least 1",
    ),
    "wrong case": (
        released,
        "cased_L-12_H-768_A-12 was trained on cased text; pass --do_lower_case=false",
    ),
    "output is input": (output_is_input, "texts.txt: is also an input"),
    "output is a folder": (
        lambda folder: {"output_file": str(folder)},
        "is a folder; name a file in it",
    ),
    "output in no folder": (
        lambda folder: {"output_file": str(folder / "no" / "output")},
        "there is no folder .*no; create it",
    ),
    "output under a file": (output_under_a_file, "there is no folder .*file"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("output_format", ["json", "hdf5"])
def test_bad_input_is_one_line_and_leaves_what_is_there(tmp_path, name, output_format):
    change, message = BAD[name]
    (tmp_path / "output").write_text("earlier")
    changes = change(tmp_path)
    files = {path for path in tmp_path.rglob("*")}
    with pytest.raises(UserError, match=message) as error:
        run(tmp_path, output_format=output_format, **changes)
    assert "\n" not in str(error.value)
    assert (tmp_path / "output").read_text() == "earlier"
    assert {path for path in tmp_path.rglob("*")} == files


@pytest.mark.slow
def test_failing_in_the_middle_keeps_what_was_there(tmp_path, monkeypatch):
    """Two batches come out, then the machine says no."""
    calls = itertools.count()
    encoder = FeatureExtractor.__call__

    def failing(self, batch):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return encoder(self, batch)

    monkeypatch.setattr(FeatureExtractor, "__call__", failing)
    monkeypatch.setattr(features, "_BATCHES_SORTED", 1)
    for output_format in ("json", "hdf5"):
        (tmp_path / "output").write_text("earlier")
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, batch_size=1, output_format=output_format)
        assert os.listdir(tmp_path) == ["output"]
        assert (tmp_path / "output").read_text() == "earlier"
        calls = itertools.count()
