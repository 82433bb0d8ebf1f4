"""Records read in their order, on any hosts and replicas."""

import numpy as np
import pytest

from text.records import encoding, framing, reading
from text.records.record_set import RecordSet
from text.records.schema import Feature

NUMBER = (Feature("number", "int64", 1),)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of 1,100, 10 and 2,060 records, which contain their numbers."""
    folder, first, paths = tmp_path_factory.mktemp("records"), 0, []
    for place, number in enumerate((1100, 10, 2060)):
        numbers = np.arange(first, first + number)[:, None]
        examples = encoding.encode({"number": numbers}, NUMBER)
        paths.append(str(folder / f"{place}.tfrecord"))
        with open(paths[-1], "wb") as file:
            file.write(framing.frame(examples))
        first += number
    return paths


def numbers_of(records, batch_size, batches, **where):
    found = records.training(batch_size, seed=3, **where).take(batches)
    return np.stack([batch["number"].numpy()[:, 0] for batch in found])


@pytest.mark.parametrize("first", [0, 101, 310])
def test_batches_are_in_the_order_of_the_files(files, first):
    records = reading.Records(RecordSet(files).files, NUMBER, rows_per_batch=10)
    found = numbers_of(records, 10, 12, first_batch=first)
    wanted = np.arange(10 * first, 10 * first + 120) % 3170
    assert found.ravel().tolist() == wanted.tolist()
    places = records.places(10, seed=3, batch=first)
    starts = dict(zip(files, (0, 1100, 1110), strict=True))
    assert [starts[path] + number - 1 for path, number in places] == wanted[
        :10
    ].tolist()


def test_hosts_and_replicas_keep_their_rows(files):
    records = reading.Records(RecordSet(files).files, NUMBER, rows_per_batch=12)
    for host in range(2):
        part = reading.Part(host=host, hosts=2, replicas=4)
        found = numbers_of(records, 12, 10, first_batch=90, part=part)
        # Two replicas in turn; each has the same rows of every batch.
        rows = found.reshape(5, 6)
        own = rows - 1080 - 12 * np.arange(5)[:, None]
        assert (own == own[0]).all() and own[0].tolist() == [*range(host, 12, 2)]
