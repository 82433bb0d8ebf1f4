"""Rows that continue each other: A and B as in XLNet's release, any text, inspected."""

import json
import random

import numpy as np
import pytest

import create_pretraining_data
import inspect_records
import tests
from errors import UserError
from family.xlnet import rows as contiguous
from tests import jobs
from text.corpus.store import Corpus
from text.instances.table import RowOptions
from text.records import encoding, framing
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.vocabulary import Vocabulary

MODEL = str(tests.GOLDEN / "sentencepiece" / "xlnet.model")
VOCABULARY = TokenizerOptions().load_tokenizer(MODEL).vocabulary
SEP, CLS, EOD = 4, 3, 7
CASES = json.loads((tests.GOLDEN / "xlnet" / "split_a_and_b.json").read_text())


class PythonsRandom:
    """Draws as the release does."""

    def __init__(self, seed):
        self._random = random.Random(seed)

    def random(self):
        return self._random.random()

    def integers(self, stop):
        return self._random.choice(range(stop))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["python_seed"]))
def test_texts_are_divided_as_in_the_release(case):
    data, sentences = np.array(case["data"]), np.array(case["sent_ids"])
    bounds = np.flatnonzero(np.diff(sentences, prepend=2, append=2))
    lengths = np.diff(bounds)
    corpus = Corpus.in_memory(data, lengths, np.array([len(lengths)]))
    without_ends = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    stream = contiguous.Stream(corpus, without_ends)
    assert stream.length == len(data)
    rng = PythonsRandom(case["python_seed"])
    begin, size, wanted = case["begin_idx"], case["tot_len"], case["result"]
    if wanted is None:  # what does not fit is not asked for
        assert begin + size >= len(data)
        return
    a_length, b_begin, b_length, is_random = contiguous.split(
        stream, begin, size, 0, len(data), rng
    )
    assert data[begin : begin + a_length].tolist() == wanted["a"]
    assert data[b_begin : b_begin + b_length].tolist() == wanted["b"]
    assert is_random == (wanted["label"] == 0)


# --- Any text ------------------------------------------------------------------------


def documents(seed, number=30):
    """Lists of sentences, with ids that tell where they are."""
    rng = np.random.default_rng(seed)
    token = iter(range(20, 1 << 16))
    return [
        [
            [next(token) for _ in range(rng.integers(1, 30))]
            for _ in range(rng.integers(1, 9))
        ]
        for _ in range(number)
    ]


def made(texts, blocks, **flags):
    """The rows of texts, planned in some blocks: [batches, rows, length], and counts."""
    instances = RowOptions(
        instances="contiguous", masking="dynamic", **flags
    ).make_instances()
    sentences = [sentence for text in texts for sentence in text]
    corpus = Corpus.in_memory(
        np.array([id for sentence in sentences for id in sentence], np.uint16),
        np.array([len(sentence) for sentence in sentences]),
        np.array([len(text) for text in texts]),
    )
    bounds = np.linspace(0, len(texts), blocks + 1).astype(int).tolist()
    planned, random_second = [], 0
    for first, last in zip(bounds, bounds[1:], strict=False):
        rng = np.random.default_rng(first)
        some, counts = instances.plan(corpus, first, last, VOCABULARY, rng)
        planned.append(some)
        random_second += counts["random_second"]
    planned = np.concatenate(planned)
    places = instances.order_rows(np.arange(len(planned)), len(planned), 1)
    batch, _ = instances.assemble(corpus, planned[places], VOCABULARY, None)
    rows = flags["rows_per_batch"]
    return {k: v.reshape(-1, rows, v.shape[1]) for k, v in batch.items()}, random_second


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("reuse", [0, 5, 20])
def test_every_row_continues_that_of_the_batch_before(blocks, reuse):
    texts = documents(blocks)
    batch, random_second = made(
        texts, blocks, max_seq_length=32, rows_per_batch=3, reuse_len=reuse
    )
    reuse = reuse or 16
    stream = [id for text in texts for id in [*(i for s in text for i in s), EOD]]
    part, ids = len(stream) // 3, batch["input_ids"]
    assert len(ids) == (part - 32) // reuse + 1 and batch["input_mask"].all()
    starts, continued = {sentence[0] for text in texts for sentence in text}, 0
    for (step, row), _ in np.ndenumerate(ids[..., 0]):
        found, begin = ids[step, row].tolist(), row * part + step * reuse
        own = stream[row * part : (row + 1) * part]
        assert found[:reuse] == stream[begin : begin + reuse]
        assert found[-2:] == [SEP, CLS]
        first = found.index(SEP)
        a, b = found[reuse:first], found[first + 1 : -2]
        assert a and b and len(a) + len(b) == 29 - reuse
        begin += reuse
        assert a == stream[begin : begin + len(a)]
        # B is a piece of the same part, from the beginning of a sentence.
        assert b[0] in starts or b[0] == own[0]
        assert own[own.index(b[0]) :][: len(b)] == b or b[0] == EOD
        continued += b == stream[begin + len(a) :][: len(b)]
        segments = [0] * (first + 1) + [1] * (31 - first - 1) + [2]
        assert batch["segment_ids"][step, row].tolist() == segments
    number = ids.shape[0] * ids.shape[1]
    assert 0 < continued <= number - random_second + 9  # of an A that is not cut
    assert 0.3 < random_second / number < 0.9  # all without a border in A


def test_a_text_that_is_too_short_has_no_rows():
    batch, _ = made(documents(0, 2), 1, max_seq_length=128, rows_per_batch=64)
    assert len(batch["input_ids"]) == 0


# --- Records -------------------------------------------------------------------------


def test_records_are_written_in_order_and_sound(tmp_path, capsys):
    text = (tests.GOLDEN / "pretraining" / "corpus.txt").read_text()
    (tmp_path / "text.txt").write_text("\n".join(text.splitlines()[:250]))
    flags = {
        "input_file": [str(tmp_path / "text.txt")],
        "output_file": [str(tmp_path / f"{i}.tfrecord") for i in range(2)],
        "vocab_file": MODEL,
        "instances": "contiguous",
        "masking": "dynamic",
        "rows_per_batch": 4,
        "max_seq_length": 32,
        "dupe_factor": 2,
        "num_workers": 1,
    }
    jobs.run(create_pretraining_data, flags)
    assert "rows, each of which continues" in capsys.readouterr().out
    ids = []
    for path in flags["output_file"]:
        examples = list(framing.read(path))
        assert len(examples) % 4 == 0
        schema = encoding.schema_of(examples[0])
        ids.append(encoding.decode(examples, schema)[0]["input_ids"])
    ids = np.concatenate(ids).reshape(2, -1, 4, 32)  # passes, batches, rows
    for each in ids:
        # What a row begins with is what follows the beginning of the one before.
        for before, after in zip(each, each[1:], strict=False):
            for old, new in zip(before, after, strict=True):
                a = old[16:].tolist()
                a = a[: a.index(SEP)]
                assert new[: len(a)].tolist() == a
    np.testing.assert_array_equal(ids[0][..., :16], ids[1][..., :16])
    assert (ids == EOD).any()
    shown = {"input_file": flags["output_file"], "vocab_file": MODEL, "num_shown": 1}
    jobs.run(inspect_records, shown)
    assert "A: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows_per_batch": 0}, "contiguous needs --rows_per_batch"),
        ({"reuse_len": 30}, "--reuse_len=30: must be from 1 to 27"),
        ({"masking": "static"}, "contiguous needs --masking=dynamic"),
        (
            {"instances": "full_sentences"},
            "--rows_per_batch has no effect with --instances=",
        ),
        (
            {"runner": "DirectRunner", "num_workers": 0},
            "contiguous is not for --runner",
        ),
        ({"max_seq_length": 512}, "is too short for rows that continue each other"),
        ({"rows_per_batch": 10**12}, "is too short for rows that continue each other"),
        (
            {"vocab_file": str(tests.GOLDEN / "checkpoint" / "vocab.txt")},
            "needs a vocabulary whose rows end with",
        ),
    ],
)
def test_refusals(tmp_path, changes, said):
    (tmp_path / "text.txt").write_text("a short text\n" * 20)
    flags = {
        "input_file": [str(tmp_path / "text.txt")],
        "output_file": [str(tmp_path / "out.tfrecord")],
        "vocab_file": MODEL,
        "instances": "contiguous",
        "masking": "dynamic",
        "rows_per_batch": 4,
        "max_seq_length": 32,
        "dupe_factor": 1,
        "num_workers": 1,
    }
    with pytest.raises(UserError, match=said):
        jobs.run(create_pretraining_data, flags | changes)
