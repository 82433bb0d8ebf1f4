"""Fine-tuning rows: what is written is read, in batches that waste little and lose none."""

import hashlib
import itertools
import pathlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.backend import tf
from errors import UserError
from text.records import reading
from text.records.rows import (
    LENGTHS,
    Field,
    Layout,
    Row,
    Rows,
    cheapest_lengths,
    write,
)

LAYOUT = Layout(
    max_seq_length=32, labels={"label_ids": Field(), "tag_ids": Field("int64", (None,))}
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


@pytest.mark.parametrize("lengths", [LENGTHS, ()])
def test_rows_come_back_as_they_were_written(path, lengths):
    rows = Rows(path, LAYOUT, lengths=lengths)
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
    assert set(widths) == {8, 12, 16, 20, 24, 32}
    assert min(widths.values()) > 20
    full = Rows(path, LAYOUT, lengths=()).training(4, seed=1, num_batches=3)
    assert full.element_spec["input_ids"].shape == [4, 32]


@pytest.mark.parametrize("lengths", [LENGTHS, ()])
@pytest.mark.parametrize("batch_size", [1, 3, 7, 33, 100, 130])
def test_no_row_comes_again_before_all_others_came(path, batch_size, lengths):
    rows = Rows(path, LAYOUT, lengths=lengths)
    counts, drawn = np.zeros(100, int), 0
    for batch in numbers(
        rows.training(batch_size, seed=3, num_batches=1000 // batch_size)
    ):
        np.add.at(counts, batch, 1)
        drawn += batch_size
        assert counts.sum() == drawn
        assert counts.min() >= drawn // 100 and counts.max() <= -(-drawn // 100)


@pytest.mark.parametrize("lengths", [LENGTHS, ()])
def test_the_order_depends_on_the_seed_alone(path, lengths):
    rows = Rows(path, LAYOUT, lengths=lengths)
    first = numbers(rows.training(5, seed=3, num_batches=60))
    assert numbers(rows.training(5, seed=3, num_batches=60)) == first
    assert numbers(rows.training(5, seed=4, num_batches=60)) != first


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


def test_no_iterator_waits_at_its_end_for_a_thread_that_tunes_it(path):
    dataset = Rows(path, LAYOUT).training(8, seed=3, num_batches=2)
    assert dataset.options().autotune.enabled is False


# --- Where each length costs something -----------------------------------------------


def tokens(chosen, needed, cost):
    """What padding each of `needed` to one of the chosen lengths costs."""
    padded = sum(
        count * min(c for c in chosen if c >= n) for n, count in needed.items()
    )
    return padded + cost * len(chosen)


@given(
    needed=st.dictionaries(
        st.integers(1, 40), st.integers(1, 20), min_size=1, max_size=7
    ),
    cost=st.integers(0, 500),
)
def test_no_other_choice_of_lengths_costs_less(needed, cost):
    needed = dict(sorted(needed.items()))
    chosen = cheapest_lengths([*needed], [*needed.values()], cost)
    assert chosen == sorted(set(chosen)) and chosen[-1] == max(needed)
    shorter = [*needed][:-1]
    least = min(
        tokens([*some, max(needed)], needed, cost)
        for number in range(len(needed))
        for some in itertools.combinations(shorter, number)
    )
    assert tokens(chosen, needed, cost) == least


def test_the_longer_a_run_the_more_lengths_it_has(path):
    rows = Rows(path, LAYOUT, tokens_per_length=4000)
    lengths = [
        rows.training_lengths(4, seed=1, num_batches=number)
        for number in (20, 300, 20_000)
    ]
    assert lengths == [[32], [20, 32], [8, 12, 16, 20, 24, 32]]


def test_choices_are_counted_as_sequences(tmp_path):
    path, lengths = str(tmp_path / "rows"), [8] * 30 + [32] * 30
    chosen = {}
    for choices in (0, 1, 4):
        layout = Layout(32, num_choices=choices)
        ids = [[5] * n if choices == 0 else [[5] * n] * choices for n in lengths]
        write(path, [Row(row, row) for row in ids], layout)
        rows = Rows(path, layout, tokens_per_length=2000)
        chosen[choices] = rows.training_lengths(2, seed=1, num_batches=30)
    assert chosen == {0: [32], 1: [32], 4: [8, 32]}


def test_coarser_padding_is_all_that_differs(path):
    fine, coarse = Rows(path, LAYOUT), Rows(path, LAYOUT, tokens_per_length=500)
    run = {"batch_size": 4, "seed": 1, "num_batches": 150}
    assert coarse.longest == fine.longest
    widths = []
    for one, other in (
        (fine.training(**run), coarse.training(**run)),
        (fine.evaluation(4), coarse.evaluation(4)),
    ):
        widths.append(set())
        batches = one.as_numpy_iterator(), other.as_numpy_iterator()
        for expected, found in zip(*batches, strict=True):
            needed, width = expected["input_ids"].shape[1], found["input_ids"].shape[1]
            widths[-1].add(width)
            assert expected.keys() == found.keys()
            for name, values in found.items():
                if values.shape[1:] == (width,):
                    assert not values[:, needed:].any()
                    values = values[:, :needed]
                assert np.array_equal(values, expected[name])
    assert widths == [{12, 20, 24, 32}, {20, 32}]
    assert coarse.training_lengths(**run) == sorted(widths[0])


def test_a_resumed_run_keeps_its_lengths(path):
    rows = Rows(path, LAYOUT, tokens_per_length=500)
    whole, rest = (
        [
            batch["input_ids"].shape[1]
            for batch in rows.training(
                4, seed=1, num_batches=150, first_batch=first
            ).as_numpy_iterator()
        ]
        for first in (0, 140)
    )
    assert whole[140:] == rest
    assert len(set(rest)) > 2  # as no run of ten updates would have


def digest(dataset):
    digest = hashlib.sha256()
    for batch in dataset.as_numpy_iterator():
        for name, x in sorted(batch.items()):
            digest.update(f"{name} {x.dtype} {x.shape}".encode() + x.tobytes())
    return digest.hexdigest()[:16]


FEWER = tuple(n for n in LENGTHS if n not in (12, 20))
# Lengths, host, hosts and replicas: of a run, of one that is resumed, of an evaluation.
DIGESTS = {
    (LENGTHS, 0, 1, 1): ("3e65f9f20c2cfb14", "9a46ec9bebccae28", "293deab8ab16fadb"),
    (LENGTHS, 1, 2, 4): ("c9badc6c7ec9ab47", "1d3cbb76a68cc70c", "39457bc186ea69ac"),
    (FEWER, 0, 1, 1): ("f701805f84801e8e", "a7fe83b91cd8cda2", "c914831656243cce"),
    (FEWER, 0, 1, 2): ("452e8e5b8bdae72e", "4ff14f1ff1063338", "050cc97c672c7984"),
    (FEWER, 0, 2, 4): ("b0441d95d463bef1", "dc7de9b72a008303", "34ff135bdedd5313"),
    (FEWER, 1, 2, 4): ("7704327958120e80", "d7a9d5c3e31c57a0", "810cf78c714e341f"),
    ((), 0, 1, 1): ("cc210918650c4fdc", "556f6b415f7c09b1", "20f3d4fa46627a58"),
    ((), 0, 1, 2): ("e48b06a9194f4c9e", "6105dc2e49d6f460", "b005c8d328e09ceb"),
    ((), 0, 2, 4): ("f20b41a494c9de59", "55c2225ed4aa8dc0", "d53987e2d61e76ef"),
    ((), 1, 2, 4): ("0f6662e0db9b2791", "3db3f82dbccf4c96", "a85cc5593924060d"),
}


@pytest.mark.parametrize("division", DIGESTS)
def test_batches_never_change(path, division):
    """Not from one version to the next: a run that was begun goes on with the other."""
    lengths, *part = division
    rows, part = Rows(path, LAYOUT, lengths=lengths), reading.Part(*part)
    run = {"seed": 3, "num_batches": 150, "part": part}
    whole, resumed, evaluated = DIGESTS[division]
    assert digest(rows.training(8, **run)) == whole
    assert digest(rows.training(8, first_batch=77, **run)) == resumed
    assert digest(rows.evaluation(8, part=part)) == evaluated


def operations(dataset):
    """The kinds of operations in the graph of a dataset and in its functions."""
    graph = tf.compat.v1.GraphDef.FromString(
        tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset)
        ).numpy()
    )
    functions = (node for f in graph.library.function for node in f.node_def)
    return {node.op for node in (*graph.node, *functions)}


def test_batches_come_without_python(path):
    """Which is not on the hosts of a remote TPU."""
    rows = Rows(path, LAYOUT)
    for dataset in (rows.training(8, seed=3, num_batches=9), rows.evaluation(8)):
        found = operations(dataset)
        assert "ParseExampleV2" in found  # the map's function was looked into
        assert not [op for op in found if "PyFunc" in op or "Generator" in op]


def test_choices_have_an_axis_of_their_own(tmp_path):
    layout = Layout(16, num_choices=3, labels={"label_ids": Field()})
    path = str(tmp_path / "rows")
    rows = [Row([[5] * 4, [6] * 9], [[0] * 4, [1] * 9], {"label_ids": 1})]
    write(path, rows, layout)
    (batch,) = Rows(path, layout).evaluation(1).as_numpy_iterator()
    assert batch["input_ids"].shape == (1, 3, 12)
    assert batch["input_mask"].sum(axis=-1).tolist() == [[4, 9, 0]]
    assert batch["segment_ids"].sum(axis=-1).tolist() == [[0, 9, 0]]


def test_damaged_file_and_other_rows_are_refused(path, tmp_path):
    content = pathlib.Path(path).read_bytes()
    bad = tmp_path / "bad"
    for damaged in (content[:-7], content[:900] + b"\xff" + content[901:]):
        bad.write_bytes(damaged)
        with pytest.raises(UserError, match="bad: is damaged; delete it and run"):
            Rows(str(bad), LAYOUT)
    with pytest.raises(UserError, match="contains rows of a different kind; delete it"):
        Rows(path, Layout(16))


def test_file_that_turns_bad_is_named(path):
    file = pathlib.Path(path)
    content, rows = file.read_bytes(), Rows(path, LAYOUT)
    for damaged, message in (
        (content[:-1] + b"\xff", "train.tf_record: is damaged; delete it"),
        (content[:-9], "train.tf_record: is damaged"),
        (content[: len(content) // 2], "train.tf_record: no longer contains the 100"),
        (content + content, "train.tf_record: no longer contains the 100 rows"),
        (None, "train.tf_record: cannot be read"),
    ):
        file.write_bytes(damaged) if damaged is not None else file.unlink()
        with pytest.raises(UserError, match=message):
            rows.training(8, seed=3, num_batches=9)
        with pytest.raises(UserError, match=message):
            rows.evaluation(8)
