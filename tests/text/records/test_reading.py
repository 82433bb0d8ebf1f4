"""Reading records: what order, what part, each once, and what broken files say."""

import gzip
import json
import os

import numpy as np
import pytest

from training.backend import tf
from errors import UserError
from tests import tiers
from text.records import blocks, descriptions, framing, reading
from text.records.record_set import RecordSet
from text.records.schema import Feature

SCHEMA = (
    Feature("input_ids", "int64", 2, "vocab_size"),
    Feature("masked_lm_weights", "float32", 1),
)


def example(number, ids="input_ids"):
    feature = {
        ids: tf.train.Feature(int64_list=tf.train.Int64List(value=[number, 7])),
        "masked_lm_weights": tf.train.Feature(
            float_list=tf.train.FloatList(value=[0.5])
        ),
    }
    return tf.train.Example(
        features=tf.train.Features(feature=feature)
    ).SerializeToString()


def write(path, numbers, **kwargs):
    content = framing.frame([example(number, **kwargs) for number in numbers])
    path.write_bytes(content)
    return str(path)


def opened(*paths, schema=SCHEMA):
    return reading.Records(RecordSet(paths).files, schema)


def numbers(dataset, batches):
    return [
        b["input_ids"][:, 0].tolist() for b in dataset.take(batches).as_numpy_iterator()
    ]


@pytest.fixture(params=["plain", "one packed"])
def three_files(tmp_path, request):
    write(tmp_path / "a", range(0, 5))
    write(tmp_path / "b", range(5, 7))
    write(tmp_path / "c", range(7, 10))
    if request.param == "one packed":
        (tmp_path / "c").write_bytes(gzip.compress((tmp_path / "c").read_bytes()))
    data = opened(f"{tmp_path}/*")
    assert data.packed == (request.param == "one packed")
    return data


def test_every_epoch_holds_every_record_once_in_another_order(three_files):
    flat = sum(numbers(three_files.training(4, seed=3), 10), [])
    epochs = [flat[i : i + 10] for i in range(0, 40, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 4
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_no_iterator_waits_at_its_end_for_a_thread_that_tunes_it(three_files):
    for dataset in (
        three_files.training(4, seed=3),
        three_files.evaluation(4, max_batches=2),
    ):
        options = dataset.options()
        assert options.autotune.enabled is False and options.deterministic


def test_order_depends_on_the_seed_alone(three_files):
    first = numbers(three_files.training(4, seed=3), 10)
    assert numbers(three_files.training(4, seed=3), 10) == first
    assert numbers(three_files.training(4, seed=4), 10) != first


@pytest.mark.parametrize("first_batch", tiers.cases([1, 5, 7], [7]))
def test_order_goes_on_where_it_stopped(three_files, first_batch):
    straight = numbers(three_files.training(4, seed=3), 10)
    resumed = three_files.training(4, seed=3, first_batch=first_batch)
    assert numbers(resumed, 10 - first_batch) == straight[first_batch:]


def test_hosts_and_replicas_share_the_batches(three_files):
    whole = numbers(three_files.training(4, seed=3), 5)

    def of_host(host):
        part = reading.Part(host=host, hosts=2, replicas=4)
        return numbers(three_files.training(4, seed=3, part=part), 10)

    # A host has every second record; its first replica takes the first half of them.
    a, b = of_host(0), of_host(1)
    together = [a[i] + b[i] + a[i + 1] + b[i + 1] for i in range(0, 10, 2)]
    assert together == whole


def rows_by_number(dataset, batches):
    found = {}
    for batch in dataset.take(batches).as_numpy_iterator():
        found |= zip(
            batch["row_numbers"].tolist(),
            batch["input_ids"][:, 0].tolist(),
            strict=True,
        )
    return found


def test_a_row_has_its_number_however_batches_are_divided(three_files):
    whole = rows_by_number(three_files.training(4, seed=3), 5)
    assert sorted(whole) == list(range(20))
    assert list(whole.values()) == sum(numbers(three_files.training(4, seed=3), 5), [])
    divided = {}
    for host in range(2):
        part = reading.Part(host=host, hosts=2, replicas=4)
        divided |= rows_by_number(three_files.training(4, seed=3, part=part), 10)
    assert divided == whole
    resumed = rows_by_number(three_files.training(4, seed=3, first_batch=3), 2)
    assert resumed == {n: row for n, row in whole.items() if n >= 12}


def test_held_out_rows_have_their_numbers_too(three_files):
    whole = rows_by_number(three_files.evaluation(4, max_batches=9), 9)
    assert [whole[n] for n in range(10)] == list(range(10))
    part = reading.Part(host=1, hosts=2, replicas=2)
    mine = rows_by_number(three_files.evaluation(4, max_batches=9, part=part), 9)
    assert {n: mine[n] for n in (2, 3, 6, 7)} == {2: 2, 3: 3, 6: 6, 7: 7}


def test_row_numbers_beyond_32_bits_go_round(tmp_path):
    data = opened(write(tmp_path / "a", range(4)))
    (batch,) = data.training(2, seed=0, first_batch=2**31 + 1).take(1)
    assert batch["row_numbers"].numpy().tolist() == [2, 3]


def test_places_say_where_a_batch_comes_from(three_files):
    (batch,) = numbers(three_files.training(4, seed=3, first_batch=6), 1)
    first = {"a": 0, "b": 5, "c": 7}
    places = three_files.places(4, seed=3, batch=6)
    assert [first[os.path.basename(p)] + n - 1 for p, n in places] == batch


def test_evaluation_counts_every_record_once(three_files):
    batches = list(three_files.evaluation(4, max_batches=9).as_numpy_iterator())
    assert [b["input_ids"][:, 0].tolist() for b in batches] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 9, 9],
    ]
    assert [b["is_real_example"].tolist() for b in batches] == [
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 0, 0],
    ]
    assert numbers(three_files.evaluation(4, max_batches=2), 9) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


def test_evaluation_is_shared_by_hosts(three_files):
    part = reading.Part(host=1, hosts=2, replicas=2)
    batches = three_files.evaluation(4, max_batches=9, part=part)
    weights = [b["is_real_example"].tolist() for b in batches.as_numpy_iterator()]
    assert numbers(batches, 9) == [[2, 3], [6, 7], [9, 9]]
    assert weights == [[1, 1], [1, 1], [0, 0]]


def test_types_and_other_names(tmp_path):
    path = write(tmp_path / "v2", range(3), ids="input_word_ids")
    batch = next(iter(opened(path).training(2, seed=0)))
    assert sorted(batch) == ["input_ids", "masked_lm_weights", "row_numbers"]
    assert batch["input_ids"].dtype == tf.int32
    assert batch["input_ids"].shape == [2, 2]
    assert batch["masked_lm_weights"].numpy().tolist() == [[0.5], [0.5]]


def test_files_of_two_kinds_are_refused(tmp_path):
    write(tmp_path / "a", range(3))
    write(tmp_path / "b", range(3), ids="input_word_ids")
    with pytest.raises(UserError, match="b: its features are named input_word_ids"):
        opened(f"{tmp_path}/a", f"{tmp_path}/b")


def test_broken_files_are_named_with_the_record(tmp_path):
    path = tmp_path / "x"
    write(path, range(4))
    content = path.read_bytes()
    size = len(content) // 4
    for broken, message in (
        (b"", "x: the file is empty"),
        (content[: size * 2 + 30], "x: record 3: the file ends within it"),
        (content[: size * 2 + 5], "x: record 3: the file ends within it"),
        (b"a corpus, not records\n", "x: record 1: .*not a TFRecord file"),
        (gzip.compress(content)[:-20], "x: record .*compressed data is damaged"),
    ):
        path.write_bytes(broken)
        with pytest.raises(UserError, match=message):
            opened(str(path))
    flipped = bytearray(content)
    flipped[size + 40] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(UserError, match="x: record 2: the data's checksum is wrong"):
        opened(str(path)).check()


@pytest.mark.parametrize("bit", range(0, 96, 3))
def test_a_flipped_bit_in_a_length_is_named(tmp_path, bit):
    size = 256  # a wrong length may lead to where another record begins
    content = bytearray(framing.frame([bytes(size - framing.FRAME)] * 8))
    content[2 * size + bit // 8] ^= 1 << bit % 8
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UserError, match="x: record 3: the length's checksum is wrong"):
        opened(str(path))


def test_foreign_records_are_refused(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(framing.frame([b"\xff\xff\xff"]))
    with pytest.raises(UserError, match="x: record 1 is not a tf.train.Example"):
        opened(str(path))
    write(path, range(3))
    longer = (Feature("input_ids", "int64", 3),)
    with pytest.raises(UserError, match="2 values of input_ids, not 3"):
        opened(str(path), schema=longer)
    other = (Feature("label_ids", "int64", 1),)
    with pytest.raises(UserError, match="record 1 has no label_ids"):
        opened(str(path), schema=other)


def test_record_broken_behind_the_first_is_found_by_check(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_CHECKED_TOGETHER", 2)
    path = tmp_path / "x"
    path.write_bytes(framing.frame([*map(example, range(16)), b"\n\x00"]))
    data = opened(str(path))
    data.check_beginnings()
    with pytest.raises(UserError, match="x: record 17 has no input_ids"):
        data.check()


@pytest.mark.parametrize("number", [9, -1, 2**32 + 1])
def test_value_out_of_range_stops_the_reading_and_is_named(tmp_path, number):
    path = write(tmp_path / "x", [1, 2, number])
    data = reading.Records(RecordSet([path]).files, SCHEMA, {"vocab_size": 9})
    with pytest.raises(reading.ERRORS):
        numbers(data.training(3, seed=0), 1)
    with pytest.raises(
        UserError, match=f"x: record 3 has {number} in input_ids; .* to 8 .*vocab_size"
    ):
        data.check()


def test_weight_that_is_no_flag_is_named(tmp_path):
    path = write(tmp_path / "x", [1])
    schema = (Feature("masked_lm_weights", "float32", 1, 2),)
    data = reading.Records(RecordSet([path]).files, schema)
    with pytest.raises(UserError, match="x: record 1 has 0.5 in masked_lm_weights"):
        data.check_beginnings()


@pytest.mark.parametrize("content", [b"", gzip.compress(b"")], ids=["plain", "gzip"])
def test_an_empty_file_that_no_description_lists_is_refused(tmp_path, content):
    (tmp_path / "empty").write_bytes(content)
    files = RecordSet([write(tmp_path / "x", [1]), str(tmp_path / "empty")]).files
    with pytest.raises(UserError, match="empty: (no records|the file is empty); write"):
        reading.Records(files, SCHEMA)


def test_folder_is_no_record_file(tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path}: is a folder; name its files"):
        opened(str(tmp_path))


def describe(path, instances):
    outputs = [{"file": os.path.basename(p), "instances": n} for p, n in instances]
    path.write_text(json.dumps({"outputs": outputs, "max_seq_length": 2}))


def test_description_gives_the_number_of_records(tmp_path):
    a, b = write(tmp_path / "a", range(3)), write(tmp_path / "b", [])
    c = write(tmp_path / "c", range(2))
    describe(tmp_path / "a.description.json", [(a, 3), (b, 0)])
    records = RecordSet([a, b, c])
    assert [(f.path, f.total) for f in records.files] == [(a, 3), (b, 0), (c, 2)]
    (description,) = records.descriptions
    assert description.max_seq_length == 2
    assert [file.path for file in reading.Records(records.files, SCHEMA).files] == [
        a,
        c,
    ]


def test_description_of_another_file_is_refused(tmp_path):
    a = write(tmp_path / "a", range(3))
    size = os.path.getsize(a)
    description = tmp_path / "a.description.json"
    for output, message in (
        ({"instances": 4}, "a: 3 records, but 4 when"),
        (
            {"instances": 3, "bytes": size + 1},
            f"a: has {size} bytes, not {size + 1} as",
        ),
        ({"instances": 3, "offsets": []}, "json: its offsets for .*a do not match"),
        ({"instances": 3, "offsets": [7]}, "its offsets"),
        ({"instances": 1025, "offsets": [0, 0]}, "its offsets"),
        ({"instances": 1025, "offsets": [0, size]}, "its offsets"),
        ({"instances": 3, "offsets": ["x"]}, "its offsets"),
        ({"instances": 3, "offsets": 0}, "its offsets"),
    ):
        description.write_text(json.dumps({"outputs": [{"file": "a"} | output]}))
        with pytest.raises(UserError, match=message):
            opened(a)
    given = {"file": "a", "instances": 3, "bytes": size, "offsets": [0]}
    description.write_text(json.dumps({"outputs": [given]}))
    assert sorted(sum(numbers(opened(a).training(3, seed=0), 1), [])) == [0, 1, 2]


@pytest.mark.parametrize("place", ["a plain file", "ram://"])
def test_offsets_are_found_where_no_description_has_them(tmp_path, place, monkeypatch):
    """On ram://, as on gs://, a file cannot be mapped."""
    monkeypatch.setattr(blocks, "BLOCK", 4)
    content = framing.frame([example(8**n) for n in range(11)])
    path = str(tmp_path / "a") if place == "a plain file" else "ram://offsets/a"
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)
    records = RecordSet([path])
    (found,) = records.files
    assert found.total == 11
    edges = [
        len(framing.frame([example(8**i) for i in range(n)])) for n in (0, 4, 8, 11)
    ]
    assert found.offsets.tolist() == edges
    (batch,) = numbers(reading.Records(records.files, SCHEMA).training(11, seed=0), 1)
    assert sorted(batch) == [8**n for n in range(11)]


def test_wrong_offset_is_noticed_and_named(tmp_path):
    a = write(tmp_path / "a", range(3000))
    frames = [len(framing.frame([example(n)])) for n in range(3000)]
    starts = (np.cumsum(frames) - frames).tolist()
    right = [0, starts[1024], starts[2048]]
    output = {"file": "a", "instances": 3000, "bytes": os.path.getsize(a)}
    description = tmp_path / "a.description.json"
    for wrong in (
        [0, starts[1025], starts[2048]],  # there a record begins, too
        [0, starts[1024], starts[2047]],
        [0, starts[1024] + 1, starts[2048]],
    ):
        description.write_text(json.dumps({"outputs": [output | {"offsets": wrong}]}))
        data = opened(a)
        with pytest.raises(reading.ERRORS):
            numbers(data.training(3000, seed=0), 1)
        with pytest.raises(UserError, match="a: record (1025|2049) begins at byte"):
            data.check()
    description.write_text(json.dumps({"outputs": [output | {"offsets": right}]}))
    (batch,) = numbers(opened(a).training(3000, seed=0), 1)
    assert sorted(batch) == list(range(3000))


@pytest.mark.parametrize("packed", [False, True])
def test_file_that_lost_records_stops_the_reading(tmp_path, packed):
    pack = gzip.compress if packed else bytes
    path = tmp_path / "a"
    path.write_bytes(pack(framing.frame([example(n) for n in range(4)])))
    data = opened(str(path))
    path.write_bytes(pack(framing.frame([example(n) for n in range(3)])))
    with pytest.raises(reading.ERRORS):
        numbers(data.training(2, seed=0), 5)
    with pytest.raises(UserError, match="a: 3 records, but 4"):
        data.check()
    path.write_bytes(b"")
    with pytest.raises(UserError, match="a: 0 records, but 4"):
        data.check()


def test_host_reads_its_own_blocks_only(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 4)
    path = write(tmp_path / "a", range(128))  # two rounds of 16 blocks, and no rest
    data = opened(path)
    ((_, number),) = data.places(1, seed=3, batch=0)
    content = bytearray((tmp_path / "a").read_bytes())
    damaged = content.index(framing.frame([example(number - 1)])) + 20
    content[damaged] ^= 1
    (tmp_path / "a").write_bytes(content)

    def epoch(host):
        part = reading.Part(host=host, hosts=2, replicas=2)
        return sum(numbers(data.training(4, seed=3, part=part), 32), [])

    assert len(set(epoch(host=1))) == 64
    with pytest.raises(reading.ERRORS):
        epoch(host=0)
    # Nor does who enters in the second round.
    assert len(numbers(data.training(4, seed=3, first_batch=16), 16)) == 16


def test_a_description_that_was_altered_is_refused(tmp_path):
    path = tmp_path / "x.description.json"
    outputs = [{"file": "x", "instances": 1234}]
    descriptions.Description(outputs, max_seq_length=128).write(str(path))
    content = path.read_text()
    for old, new in (("1234", "1235"), ("128", "129"), ("_seq_", "_seb_")):
        path.write_text(content.replace(old, new))
        with pytest.raises(UserError, match="x.description.json: .*checksum is wrong"):
            descriptions.Description.read(str(path))
    # Without the checksum, anything goes.
    without = {name: x for name, x in json.loads(content).items() if name != "sha256"}
    path.write_text(json.dumps(without))
    assert descriptions.Description.read(str(path)).max_seq_length == 128


def test_a_bad_description_does_not_block_other_records(tmp_path):
    path = write(tmp_path / "good", range(3))
    describe(tmp_path / "good.description.json", [(path, 3)])
    (tmp_path / "bad.description.json").write_text("{")
    assert list(descriptions.find([path])) == [path]
    bad = write(tmp_path / "bad", range(3))
    with pytest.raises(UserError, match="bad.description.json:1: not JSON"):
        descriptions.find([path, bad])


def test_bad_description_and_missing_file_are_named(tmp_path):
    a = write(tmp_path / "a", range(3))
    (tmp_path / "x.description.json").write_text("{}")
    with pytest.raises(UserError, match="x.description.json: is not a description"):
        descriptions.find([a])
    with pytest.raises(UserError, match="nothing: no file matches"):
        RecordSet([f"{tmp_path}/nothing"])


def test_name_that_looks_like_a_pattern_is_taken_literally(tmp_path):
    path = write(tmp_path / "y[1].tfrecord", range(3))
    write(tmp_path / "y1.tfrecord", range(3))
    for pattern, name in ((path, path), ("y[12].tfrecord", "y1.tfrecord")):
        (file,) = RecordSet([str(tmp_path / pattern)]).files
        assert file.path == str(tmp_path / name)
    data = opened(path)
    assert len(numbers(data.training(3, seed=0), 1)) == 1
