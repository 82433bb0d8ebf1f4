"""The order of training: each record once, the same for all hosts, entered anywhere."""

import numpy as np
import pytest

from tests import tiers
from text.records import blocks


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 4)


def made(*counts):
    """Files of this many records each, which are never opened."""
    offsets = [np.arange(-(-n // blocks.BLOCK) + 1) * 100 for n in counts]
    return blocks.Blocks([str(i) for i in range(len(counts))], offsets, counts)


def take(data, count, **where):
    """The numbers of this many records in a row."""
    order = data.order(data.numbers, **{"seed": 3} | where)
    return next(iter(order.rebatch(count))).numpy()


# A round is 64 records of 16 blocks.
@pytest.mark.parametrize(
    "counts", [(1,), (7,), (63,), (64,), (65,), (838,), (3, 64, 1, 130, 2)]
)
def test_every_epoch_has_every_record_once(small_blocks, counts):
    data = made(*counts)
    epochs = take(data, 3 * data.total).reshape(3, -1)
    np.testing.assert_array_equal(
        np.sort(epochs), np.tile(np.arange(data.total), (3, 1))
    )
    assert sorted(map(data.place, epochs[0])) == [
        (str(file), n + 1) for file, count in enumerate(counts) for n in range(count)
    ]


def test_order_is_entered_at_any_record(small_blocks):
    data = made(70, 9, 200)
    straight = take(data, 4 * data.total)
    borders = [64, 256, data.total, data.total + 64, 2 * data.total - 1]
    for first in [*borders, *np.random.default_rng(0).integers(0, 3 * data.total, 4)]:
        entered = take(data, 100, first=int(first))
        np.testing.assert_array_equal(entered, straight[first : first + 100])


@pytest.mark.parametrize("hosts", tiers.cases([2, 3, 16, 32], [3, 16]))
def test_hosts_have_every_record_together(small_blocks, hosts):
    data = made(70, 9, 200)  # an odd number: a host's lanes change with the epoch
    straight = take(data, 4 * data.total)
    first = hosts * 5
    for host in {0, 1, hosts - 1}:
        mine = straight[first + host :: hosts]
        own = take(data, len(mine), first=first, host=host, hosts=hosts)
        np.testing.assert_array_equal(own, mine)


def test_batch_is_of_no_neighbours_and_epochs_differ():
    data = made(100_000, 30_000)
    numbers = take(data, 2 * data.total)
    batches = numbers[: 448 * 256].reshape(-1, 256)  # those of whole rounds
    for batch in batches:
        assert len(np.unique(batch // blocks.BLOCK)) == 16
        assert (np.diff(np.sort(batch)) == 1).sum() < 30
    first, second = numbers.reshape(2, -1)
    assert (first == second).mean() < 0.001
    assert (take(data, 1000, seed=4) == first[:1000]).mean() < 0.01


def test_small_set_is_shuffled_as_a_whole():
    data = made(838)
    epochs = take(data, 40 * 838).reshape(40, -1)
    # Every record's mean place in 40 epochs is near the middle.
    places = np.argsort(epochs, axis=1).mean(axis=0)
    assert np.abs(places - 418.5).max() < 5 * 242 / np.sqrt(40)


def test_order_of_a_run_that_is_under_way_stays(small_blocks):
    """A later version, of this code or of TensorFlow, resumes what was begun with this."""
    data = made(70, 9)
    assert take(data, 8).tolist() == [9, 51, 19, 68, 59, 3, 72, 55]
    assert take(data, 8, first=64).tolist() == [7, 20, 42, 78, 6, 41, 22, 4]
    assert take(data, 8, first=79).tolist() == [36, 40, 13, 16, 6, 33, 8, 63]
