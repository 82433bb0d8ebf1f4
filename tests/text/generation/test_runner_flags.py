"""--runner, where Apache Beam need not be installed."""

import importlib.util

import pytest

import create_pretraining_data
from errors import UserError
from tests.text.generation.settings import VOCAB_FILE

GIVEN = {"vocab_file": VOCAB_FILE, "input_file": ["x"], "output_file": ["y"]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"dry_run": True}, "--dry_run has no effect with --runner"),
        ({"num_workers": 2}, "--num_workers has no effect with"),
        ({"num_shards": 2}, "--num_shards has no effect with"),
        (
            {"num_shards": 2, "shard_index": 1},
            "--num_shards has no effect with",
        ),
        (
            {"beam_options": "--a", "runner": ""},
            "has no effect without --runner",
        ),
    ],
)
def test_flags_that_do_not_go_with_a_runner_are_refused(changed, message):
    with pytest.raises(UserError, match=message):
        create_pretraining_data.Options(**GIVEN | {"runner": "DirectRunner"} | changed)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    given = create_pretraining_data.Options(**GIVEN, runner="DirectRunner")
    with pytest.raises(UserError, match="pip install -r requirements/beam.txt"):
        create_pretraining_data.main(given)


def test_only_a_runner_may_write_elsewhere():
    given = create_pretraining_data.Options(
        **GIVEN | {"input_file": [__file__], "output_file": ["gs://x/y"]}
    )
    with pytest.raises(UserError, match="only be written to a local folder"):
        create_pretraining_data.main(given)
