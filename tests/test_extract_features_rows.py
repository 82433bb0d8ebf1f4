"""extract_features.py: rows in batches, long texts in windows."""

import collections
import itertools
import json
import sys

import numpy as np
import pytest

from extract_features import Options
from tests import jobs, tiny
from tests.features import (
    MODEL,
    ROOT,
    assert_close,
    flags,
    keys_of,
    lines_of,
    numbers,
    run,
    vectors,
    write,
)
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.queries.text_features import Counts, Extractor, encode, make_rows


@pytest.mark.exhaustive
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


class Echo(Extractor):
    """In the place of an encoder: a row's features are its ids; notes the shapes."""

    token_bytes = 1 << 20
    pooling = "none"
    config = tiny.config()

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
    assert set(encoder.shapes) <= {(4, n) for n in (8, 12, 16, 20, 24, 32)}


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


@pytest.mark.exhaustive
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


def test_features_of_windows_are_those_of_their_texts(tmp_path, capsys, untraced):
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
    assert "read in windows: 1 text longer than a row" in said
    assert "cut off" not in said
    # Pooled, every token counts once.
    found = lines_of(run(tmp_path, doc_stride=3, pooling="mean", **changes))
    for line, tokens in zip(found, (whole, *parts), strict=True):
        values = [layer["values"] for layer in line["layers"]]
        assert_close(values, vectors(tokens).mean(axis=1))


def test_pairs_are_cut_off_even_with_windows(tmp_path, capsys, untraced):
    texts = write(tmp_path, "a b c d e ||| f g h")
    (line,) = lines_of(run(tmp_path, input_file=texts, max_seq_length=8, doc_stride=3))
    assert len(line["features"]) == 8
    assert "cut off 1 text at --max_seq_length=8 (pairs have no windows)" in (
        capsys.readouterr().err
    )
