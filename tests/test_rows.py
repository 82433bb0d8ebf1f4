"""Fine-tuning rows: what is written is read, in batches that waste little and lose none."""

import pathlib

import numpy as np
import pytest

import training  # noqa: F401  (first: TensorFlow quietly)
from text import reading
from text.errors import UserError
from text.rows import Field, Layout, Row, Rows, write

LAYOUT = Layout(
    max_seq_length=32,
    labels={"label_ids": Field(), "tag_ids": Field("int64", (None,))},
)


def made(number=100, longest=30):
    """Rows whose label is their number and whose ids tell their length."""
    rng = np.random.default_rng(0)
    for i in range(number):
        n = int(rng.integers(2, longest + 1))
        yield Row([n] * n, [0] * (n - 1) + [1], {"label_ids": i, "tag_ids": [3] * n})


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "train.tf_record")
    assert write(path, made(), LAYOUT) == 100
    return path


def numbers(batches):
    return [batch["label_ids"].tolist() for batch in batches.as_numpy_iterator()]


@pytest.mark.parametrize("bucketed", [True, False])
def test_rows_come_back_as_they_were_written(path, bucketed):
    rows = Rows(path, LAYOUT, bucketed=bucketed)
    order = rows.in_order(8)
    seen = {}
    for places, batch in zip(
        order, rows.evaluation(8).as_numpy_iterator(), strict=True
    ):
        assert batch["is_real_example"].tolist() == (places >= 0).tolist()
        for place, *values in zip(places, *batch.values(), strict=True):
            if place >= 0:
                assert place not in seen
                seen[place] = dict(zip(batch, values, strict=True))
    for i, row in enumerate(made()):
        n = len(row.input_ids)
        assert seen[i]["label_ids"] == i
        for name, expected in (
            ("input_ids", row.input_ids),
            ("segment_ids", row.segment_ids),
            ("input_mask", [1] * n),
            ("tag_ids", [3] * n),
        ):
            assert seen[i][name][:n].tolist() == expected
            assert not seen[i][name][n:].any()
    assert len(seen) == 100


def test_batches_are_as_long_as_their_longest_row_out_of_a_few_lengths(path):
    rows = Rows(path, LAYOUT)
    data = rows.training(4, seed=1, num_batches=200)
    widths = {}
    for batch in data.as_numpy_iterator():
        width, longest = batch["input_ids"].shape[1], batch["input_ids"].max()
        assert longest <= width and width - longest < 8
        assert batch["tag_ids"].shape == (4, width)
        widths[width] = widths.get(width, 0) + 1
    assert set(widths) == {8, 16, 24, 32}
    assert min(widths.values()) > 20
    full = Rows(path, LAYOUT, bucketed=False).training(4, seed=1, num_batches=3)
    assert full.element_spec["input_ids"].shape == [4, 32]


@pytest.mark.parametrize("bucketed", [True, False])
def test_every_epoch_has_every_row_once_however_long_it_is(path, bucketed):
    rows = Rows(path, LAYOUT, bucketed=bucketed)
    seen = np.concatenate(numbers(rows.training(5, seed=3, num_batches=60)))
    assert np.bincount(seen).tolist() == [3] * 100
    again = np.concatenate(numbers(rows.training(5, seed=3, num_batches=60)))
    assert seen.tolist() == again.tolist()
    other = np.concatenate(numbers(rows.training(5, seed=4, num_batches=60)))
    assert seen.tolist() != other.tolist()


@pytest.mark.parametrize("bucketed", [True, False])
@pytest.mark.parametrize("batch_size", [1, 3, 7, 33, 100, 130])
def test_no_row_comes_again_before_all_others_came(path, batch_size, bucketed):
    rows = Rows(path, LAYOUT, bucketed=bucketed)
    counts, drawn = np.zeros(100, int), 0
    for batch in numbers(
        rows.training(batch_size, seed=3, num_batches=1000 // batch_size)
    ):
        np.add.at(counts, batch, 1)
        drawn += batch_size
        assert counts.sum() == drawn
        assert counts.min() >= drawn // 100 and counts.max() <= -(-drawn // 100)


def test_rows_of_one_batch_change_from_epoch_to_epoch(path):
    rows = Rows(path, LAYOUT)
    batches = [frozenset(b) for b in numbers(rows.training(5, seed=3, num_batches=640))]
    assert len(set(batches)) > 600


def test_resumed_batches_are_those_that_would_have_come(path):
    rows = Rows(path, LAYOUT)
    whole = numbers(rows.training(8, seed=3, num_batches=150))
    for first in (1, 63, 64, 100, 149):
        rest = rows.training(8, seed=3, num_batches=150, first_batch=first)
        assert numbers(rest) == whole[first:]
    for batch in (0, 77):
        assert rows.places(8, seed=3, num_batches=150, batch=batch) == whole[batch]


def test_hosts_and_replicas_share_the_same_batches(path):
    rows = Rows(path, LAYOUT)
    whole = numbers(rows.training(8, seed=3, num_batches=20))
    parts = [
        numbers(
            rows.training(
                8, seed=3, num_batches=20, part=reading.Part(host, hosts=2, replicas=4)
            )
        )
        for host in range(2)
    ]
    # Two replicas of each host: the first host's, then the second's.
    joined = [
        sum((parts[host][2 * i + k] for host in range(2) for k in range(2)), [])
        for i in range(20)
    ]
    assert joined == whole


def test_choices_have_an_axis_of_their_own(tmp_path):
    layout = Layout(16, num_choices=3, labels={"label_ids": Field()})
    path = str(tmp_path / "rows")
    rows = [Row([[5] * 4, [6] * 9], [[0] * 4, [1] * 9], {"label_ids": 1})]
    write(path, rows, layout)
    (batch,) = Rows(path, layout).evaluation(1).as_numpy_iterator()
    assert batch["input_ids"].shape == (1, 3, 16)
    assert batch["input_mask"].sum(axis=-1).tolist() == [[4, 9, 0]]
    assert batch["segment_ids"].sum(axis=-1).tolist() == [[0, 9, 0]]


def test_cut_off_file_and_other_rows_are_refused(path, tmp_path):
    content = pathlib.Path(path).read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(content[:-7])
    with pytest.raises(UserError, match="cut: cut off"):
        Rows(str(cut), LAYOUT)
    with pytest.raises(UserError, match="rows are of another kind"):
        Rows(path, Layout(16))
