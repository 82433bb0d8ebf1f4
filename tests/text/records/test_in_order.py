"""Records read in their order, and those of XLNet's release among them."""

import json
import shutil

import numpy as np
import pytest

import inspect_records
import run_pretraining
import tests
from training.backend import tf
from errors import UserError
from tests import jobs
from text.instances.kinds import RowOptions
from text.records import encoding, framing, reading, shards, xlnet_release
from text.records.schema import Feature

GOLDEN = tests.GOLDEN / "xlnet" / "records"
MODEL = str(tests.GOLDEN / "sentencepiece" / "xlnet.model")
BI = "train-0-0.bsz-4.seqlen-64.reuse-32.bi.alpha-6.beta-1.fnp-10.tfrecords"
UNI = "train-0-0.bsz-2.seqlen-64.reuse-32.uncased.uni.alpha-6.beta-1.fnp-10.tfrecords"


# --- Any records ---------------------------------------------------------------------

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
    records = reading.Records(shards.survey(files, {}), NUMBER, rows_per_batch=10)
    found = numbers_of(records, 10, 12, first_batch=first)
    wanted = np.arange(10 * first, 10 * first + 120) % 3170
    assert found.ravel().tolist() == wanted.tolist()
    places = records.places(10, seed=3, batch=first)
    starts = dict(zip(files, (0, 1100, 1110), strict=True))
    assert [starts[path] + number - 1 for path, number in places] == wanted[
        :10
    ].tolist()


def test_hosts_and_replicas_keep_their_rows(files):
    records = reading.Records(shards.survey(files, {}), NUMBER, rows_per_batch=12)
    for host in range(2):
        part = reading.Part(host=host, hosts=2, replicas=4)
        found = numbers_of(records, 12, 10, first_batch=90, part=part)
        # Two replicas in turn; each has the same rows of every batch.
        rows = found.reshape(5, 6)
        own = rows - 1080 - 12 * np.arange(5)[:, None]
        assert (own == own[0]).all() and own[0].tolist() == [*range(host, 12, 2)]


# --- The release ---------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for path in GOLDEN.iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    return tmp_path


def test_a_name_says_how_records_were_made(folder):
    found = xlnet_release.find([str(folder / BI), str(folder / UNI), "a.tfrecord"])
    bi, uni = found.values()
    assert (bi.max_seq_length, bi.max_predictions_per_seq) == (64, 10)
    assert (bi.do_lower_case, uni.do_lower_case) == (False, True)
    recipes = [RowOptions.of(description) for description in (bi, uni)]
    assert [recipe.rows_per_batch for recipe in recipes] == [4, 2]
    assert recipes[0].make().in_order and recipes[0].reuse_len == 32
    assert bi.output(BI)["instances"] == 16
    (folder / f"record_info-{BI.removesuffix('tfrecords')}json").unlink()
    assert xlnet_release.describe(str(folder / BI)).output(BI)["instances"] is None
    (folder / f"record_info-{UNI.removesuffix('tfrecords')}json").write_text("{}")
    with pytest.raises(UserError, match="does not say the number of batches"):
        xlnet_release.describe(str(folder / UNI))


def test_released_records_have_our_features(folder):
    path = str(folder / BI)
    described = xlnet_release.find([path])
    recipe = RowOptions.of(described[path])
    files = shards.survey([path], described)
    records = reading.Records(files, recipe.make().schema(), rows_per_batch=4)
    records.check()
    batches = [
        {name: value.numpy() for name, value in batch.items()}
        for batch in records.training(4, seed=1).take(5)
    ]
    examples = [tf.train.Example.FromString(x) for x in framing.read(path)]
    for number, batch in enumerate(batches):
        rows = [examples[(4 * number + row) % 16].features.feature for row in range(4)]
        for ours, theirs in (
            ("input_ids", "input"),
            ("segment_ids", "seg_id"),
            ("is_masked", "is_masked"),
        ):
            wanted = [list(row[theirs].int64_list.value) for row in rows]
            assert batch[ours].tolist() == wanted
            assert batch[ours].dtype == np.int32
        assert batch["input_mask"].shape == (4, 64) and batch["input_mask"].all()
        assert (batch["is_masked"].sum(axis=1) == 10).all()
    # Forward rows continue each other: A begins what the next row begins with.
    ids = [batch["input_ids"] for batch in batches]
    for before, after in zip(ids[:3], ids[1:4], strict=True):
        for old, new in zip(before, after, strict=True):
            a = old[32:].tolist()
            a = a[: a.index(4)]
            assert new[: len(a)].tolist() == a


def test_released_records_are_shown_and_checked(folder, capsys):
    flags = {"vocab_file": MODEL, "num_shown": 1}
    for name in (BI, UNI):
        jobs.run(inspect_records, flags | {"input_file": [str(folder / name)]})
        out = capsys.readouterr().out
        assert "B is random text" in out and "[=" in out
        assert "10.0 tokens per record, 15.6%" in out and "no problems found" in out
    content = (folder / BI).read_bytes()
    info = folder / f"record_info-{BI.removesuffix('tfrecords')}json"
    info.write_text(json.dumps({"num_batch": 5}))
    other = folder / BI.replace("fnp-10", "fnp-9")
    other.write_bytes(content)
    for path, said in ((BI, "description says 20"), (other.name, "be 1 for 9 tokens")):
        jobs.run(inspect_records, flags | {"input_file": [str(folder / path)]})
        assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train_batch_size": 8}, "a batch has 4; pass --train_batch_size=4"),
        ({"max_seq_length": 32}, "says max_seq_length=64"),
        ({"objective": "masked_lm"}, "have no masked_lm_positions"),
    ],
)
def test_training_refuses_what_does_not_fit(folder, changes, said):
    (folder / "config.json").write_text(
        json.dumps(
            {
                "vocab_size": 600,
                "hidden_size": 8,
                "num_attention_heads": 1,
                "num_hidden_layers": 1,
                "intermediate_size": 8,
                "max_position_embeddings": 64,
                "type_vocab_size": 3,
                "attention_direction": "left_to_right",
            }
        )
    )
    given = {
        "input_file": [str(folder / BI)],
        "bert_config_file": str(folder / "config.json"),
        "output_dir": str(folder / "output"),
        "do_train": True,
        "objective": "next_token",
        "train_batch_size": 4,
        "max_seq_length": 64,
        "max_predictions_per_seq": 10,
        "num_train_steps": 1,
    }
    with pytest.raises(UserError, match=said) as caught:
        jobs.run(run_pretraining, given | changes)
    assert "\n" not in str(caught.value)
