"""Mixtures: exact shares, in an order that can be entered anywhere, of any division."""

import gzip
import itertools
import os
import random
from fractions import Fraction

import numpy as np
import pytest

from errors import UserError
from tests import tiers
from text.records import encoding, framing, mixture, reading
from text.records.mixed import MixedRecords
from text.records.mixture import Mixture, SourceOrder
from text.records.record_set import RecordSet
from text.records.schema import Feature

SCHEMA = (Feature("input_ids", "int64", 1),)
SIZES = {"wiki": 70, "books": 30, "code": 10}
WEIGHTED = "wiki*:0.6", "books*:0.3", "code*:0.1"
FIRST = {"wiki": 0, "books": 100, "code": 200}  # of the numbers in its records


def write(path, numbers):
    examples = encoding.encode({"input_ids": np.array(numbers)[:, None]}, SCHEMA)
    path.write_bytes(framing.frame(examples))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, size in SIZES.items():
        write(tmp_path / f"{name}.tfrecord", range(FIRST[name], FIRST[name] + size))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mixed(*patterns, temperature=None):
    records = RecordSet(patterns)
    return mixture.of_patterns(records, records.patterns, temperature)


def opened(*patterns, temperature=None):
    sources = mixed(*patterns, temperature=temperature)
    return MixedRecords(sources, sources.names, SCHEMA)


@pytest.fixture
def data(folder):
    """Two sources are plain, and one is packed."""
    path = folder / "books.tfrecord"
    path.write_bytes(gzip.compress(path.read_bytes()))
    return opened(*WEIGHTED)


# --- Shares ------------------------------------------------------------------------------


def shares_of_many(number):
    """Sets of weights: round ones, and such as need the longest period."""
    rng = random.Random(number)
    while True:
        most = rng.choice([3, 20, 10**6])
        yield [Fraction(rng.randint(1, most)) for _ in range(rng.randint(1, 8))]


@pytest.mark.parametrize("seed", tiers.cases(range(6), range(1)))
def test_every_window_has_its_share_of_each_source(seed):
    """To less than a row from the beginning, so to less than two anywhere."""
    for weights in itertools.islice(shares_of_many(seed), 15):
        counts = mixture.counts_of_period([x / sum(weights) for x in weights])
        schedule, period = SourceOrder(counts, seed), sum(counts)
        begun = np.zeros((period + 1, len(counts)), np.int64)
        begun[np.arange(period) + 1, schedule.pattern] = 1
        begun = np.cumsum(begun, axis=0)
        # In units of 1 / period: off by at most 1 - 1 / (2 k - 2) of a row.
        off = np.abs(begun * period - np.arange(period + 1)[:, None] * counts)
        steps = max(2 * len(counts) - 2, 2)
        assert off.max() * steps <= period * (steps - 1)
        for row in (0, 1, period - 1, 3 * period + 1):
            expected = row // period * begun[-1] + begun[row % period]
            assert schedule.before(row).tolist() == expected.tolist()


def test_shares_are_exact_or_rounded_to_what_a_period_has():
    def counts(*weights):
        total = sum(map(Fraction, weights))
        return mixture.counts_of_period([Fraction(x) / total for x in weights])

    assert counts("0.7", "0.2", "0.1") == (7, 2, 1)
    assert counts("30", "10") == (3, 1)
    assert counts("1") == (1,)
    tiny = counts("1", "1e-30", "0.3333333333")
    assert sum(tiny) == mixture.LONGEST_PERIOD and tiny[1] == 1
    assert tiny[2] == pytest.approx(sum(tiny) / 4, abs=1)


def test_ties_depend_on_the_seed():
    orders = {tuple(SourceOrder((1,) * 5, seed).pattern) for seed in range(9)}
    assert len(orders) > 5


def test_a_temperature_flattens_the_shares(folder):
    for temperature in (1.0, 3.0, float("inf")):
        weights = [size ** (1 / temperature) for size in SIZES.values()]
        names = "wiki*", "books*", "code*"
        found = mixed(*names, temperature=temperature).shares
        assert found == pytest.approx([w / sum(weights) for w in weights], abs=2e-5)
    assert mixed(*names) is None


# --- Patterns with weights ---------------------------------------------------------------


def test_a_colon_may_be_part_of_a_name(folder):
    write(folder / "wiki:0.5", range(3))
    write(folder / "log:2024.tfrecord", range(3))
    weights = RecordSet(["wiki:0.5", "wiki:0.5:2", "log:*", "w*.tfrecord:1e-1"]).weights
    assert list(weights.values()) == [None, 2, None, Fraction(1, 10)]
    # What a glob matches is no weight, either.
    write(folder / "log-1:7", range(3))
    assert RecordSet(["log-*:7"]).weights == {"log-*:7": None}
    with pytest.raises(UserError, match="^gs:x/wiki-[*]: no file matches"):
        RecordSet(["gs:x/wiki-*"])
    with pytest.raises(UserError, match="^C:nothing: no file matches; .* as in C:0.7"):
        RecordSet(["C:nothing"])


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "1e400", "1e-400", "-0.0"])
def test_a_weight_is_a_number_above_0(folder, weight):
    with pytest.raises(UserError, match="a weight must be a number above 0"):
        RecordSet([f"wiki*:{weight}"])


def test_mixtures_that_cannot_be_are_refused(folder):
    (folder / "empty.tfrecord").touch()
    for patterns, temperature, message in (
        (["wiki*:1", "books*"], None, r"^books\*: has no weight, but wiki\*:1 has"),
        (["wiki*:1", "[wc]*:2"], None, r"wiki.tfrecord: is in two sources, wiki\*:1 "),
        (["wiki*:1", "wiki*:1"], None, "is in two sources"),
        (["wiki*:1", "./wiki*:2"], None, "is in two sources"),
        (["wiki*:1", "books*:1"], 2.0, "^--source_temperature=2: .* remove one"),
        (["wiki*:1", "books*"], 2.0, "has no weight, but"),
        (["wiki*:1", "empty*:1"], None, "empty.tfrecord: the file is empty"),
    ):
        with pytest.raises(UserError, match=message):
            mixed(*patterns, temperature=temperature)


def test_sources_are_called_by_what_differs(folder):
    def names(*patterns):
        for pattern in patterns:
            (folder / pattern.replace("*", "0")).parent.mkdir(exist_ok=True)
            write(folder / pattern.replace("*", "0"), range(2))
        return mixed(*(f"{pattern}:1" for pattern in patterns)).names

    assert names("my/wiki-*.tfrecord", "my/books.tfrecord") == ["wiki", "books"]
    assert names("ko/train-*", "en/train-*") == ["ko", "en"]
    assert names("a.tfrecord-*", "a.tfrecord") == ["a.tfrecord-*", "a.tfrecord"]
    assert names("my/wiki-*.tfrecord") == ["wiki"]


def test_held_out_records_are_called_as_what_they_are_held_out_from(folder):
    """However many sources of them there are."""

    def names(*patterns):
        for pattern in patterns:
            (folder / pattern).parent.mkdir(parents=True, exist_ok=True)
            write(folder / pattern, range(2))
        return mixture.names_of(RecordSet(patterns), patterns, ["wiki", "books"])

    assert names("wiki/dev", "books/dev", "new/dev") == ["wiki", "books", "new"]
    assert names("wiki/dev") == names("my/wiki.tfrecord") == ["wiki"]
    assert names("my/new.tfrecord") == ["new"]
    assert names("wiki/dev", "wiki/test") == ["dev", "test"]


# --- Reading -----------------------------------------------------------------------------


def rows(dataset, batches):
    """Number of a row -> its record and its source."""
    found = {}
    for batch in dataset.take(batches).as_numpy_iterator():
        columns = (batch[k] for k in ("row_numbers", "input_ids", "source"))
        for number, (record,), source in zip(*columns, strict=True):
            found[int(number)] = int(record), int(source)
    return found


def test_each_source_is_read_whole_and_begins_anew(data):
    """Of 10 rows, 6 are the first source's, 3 the second's and 1 the third's."""
    read = rows(data.training(10, seed=3), 35)
    assert sorted(read) == list(range(350))
    for number, (name, size) in enumerate(SIZES.items()):
        own = [record for record, source in read.values() if source == number]
        assert len(own) == 35 * (6, 3, 1)[number]
        expected = list(range(FIRST[name], FIRST[name] + size))
        epochs = [own[i : i + size] for i in range(0, len(own) - size + 1, size)]
        assert [sorted(epoch) for epoch in epochs] == [expected] * (len(own) // size)
        assert len({tuple(epoch) for epoch in epochs}) == len(epochs)
    for updates in range(1, 35):
        before = data.rows_before(10 * updates, seed=3)
        assert list(before.values()) == [6 * updates, 3 * updates, updates]
    assert rows(data.training(10, seed=4), 35) != read


DIVISIONS = [(1, 2), (2, 4), (4, 4)]


@pytest.mark.parametrize(("hosts", "replicas"), tiers.cases(DIVISIONS, [(2, 4)]))
def test_hosts_replicas_and_resumed_runs_see_the_same_rows(folder, hosts, replicas):
    """Behind several epochs of the smallest, within a piece of what is read together."""
    data, first_batch = opened(*WEIGHTED), 83
    whole = rows(data.training(8, seed=3), 90)
    divided, batches = {}, (90 - first_batch) * replicas // hosts
    for host in range(hosts):
        part = reading.Part(host=host, hosts=hosts, replicas=replicas)
        dataset = data.training(8, seed=3, first_batch=first_batch, part=part)
        own = rows(dataset, batches)
        assert {number % hosts for number in own} == {host}
        divided |= own
    assert divided == {n: row for n, row in whole.items() if n >= 8 * first_batch}


def test_a_long_period_is_read_in_pieces(folder, monkeypatch):
    """Pieces may lack a source."""
    monkeypatch.setattr("text.records.mixed._ROWS_AT_ONCE", 32)
    data = opened("wiki*:0.5", "books*:0.4957", "code*:0.0043")
    assert len(data.order(0).pattern) == 10_000
    read = rows(data.training(100, seed=3), 120)
    sources = [read[number][1] for number in range(12_000)]
    assert sources == [*data.order(3).pattern, *data.order(3).pattern[:2000]]
    assert {read[n][0] // 100 == s for n, (_, s) in read.items()} == {True}
    resumed = rows(data.training(100, seed=3, first_batch=97), 10)
    assert resumed == {n: row for n, row in read.items() if 9700 <= n < 10_700}


def test_places_are_those_of_the_batch(data):
    (batch,) = data.training(8, seed=3, first_batch=21).take(1).as_numpy_iterator()
    places = data.places(8, seed=3, batch=21)
    for (record,), (path, number) in zip(batch["input_ids"], places, strict=True):
        assert record == FIRST[os.path.basename(path).partition(".")[0]] + number - 1


def test_another_mixture_continues_each_source(data):
    read = rows(data.training(10, seed=3), 20)
    other = opened("code*:0.5", "wiki*:0.5")
    before = data.rows_before(60, seed=3)
    other.begin_at({x.digest: before[name] for name, x in data.sources.items()})
    more = rows(other.training(2, seed=3), 24)
    for source, number in enumerate((2, 0)):
        whole = [record for record, s in read.values() if s == number]
        own = [record for record, s in more.values() if s == source]
        begin = 6 * (6, 3, 1)[number]
        assert own[: len(whole) - begin] == whole[begin:][: len(own)]


def test_an_evaluation_reads_each_record_once_or_a_share_of_each_source(data):
    read = rows(data.evaluation(50, max_batches=3), 3)
    assert [record for record, _ in list(read.values())[:110]] == [
        record
        for name in SIZES
        for record in range(FIRST[name], FIRST[name] + SIZES[name])
    ]
    assert [source for _, source in list(read.values())[:110]] == [0] * 70 + [
        1
    ] * 30 + [2] * 10
    some = rows(data.evaluation(11, max_batches=2), 2)
    assert [record for record, _ in some.values()] == [
        *range(14),
        *range(100, 106),
        *range(200, 202),
    ]


def test_names_of_training_and_evaluation_are_counted_together(folder):
    files = [RecordSet(["code.tfrecord"]).files]
    held_out = Mixture(["code"], files, [1])
    data = MixedRecords(held_out, ["wiki", "books", "code"], SCHEMA)
    assert {s for _, s in rows(data.evaluation(5, max_batches=2), 2).values()} == {2}
