"""Every flag of every script, with values that nobody should give it."""

import dataclasses
import importlib
import itertools
import os

import pytest

import errors
from tests import hostile

# Flags of whole numbers whose size costs nothing: seeds, places, intervals of what
# happens at most so often, and limits of what is there. Any other has an upper bound.
FREE = set(
    """
    doc_stride early_stopping_patience eval_every_steps gradient_accumulation_steps
    held_out_every iterations_per_loop keep_checkpoint_max keep_checkpoints_at keep_layers
    log_every_steps max_answer_length max_eval_steps max_modules max_records
    max_skipped_updates min_character_count min_frequency n_best_size num_shown num_tokens
    num_tpu_cores package_dev_sentences package_sentences random_seed
    save_checkpoints_steps seed top_k word_column
    """.split()
)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with the files of each script; and the commands, by script."""
    base = tmp_path_factory.mktemp("hostile")
    flags = {name: hostile.make_files(name, base / name) for name in hostile.SCRIPTS}
    return base, {name: hostile.cases(name, given) for name, given in flags.items()}


@pytest.fixture(autouse=True)
def names_of_any_kind(monkeypatch):
    """A name may have a line feed, which a command escapes where it prints it."""
    monkeypatch.setattr(errors.UserError, "__init__", Exception.__init__)


@pytest.mark.parametrize("script", hostile.SCRIPTS)
def test_a_value_is_accepted_or_refused_in_one_line(script, given):
    base, cases = given
    before = sorted(os.listdir(base / script))
    plain = cases[script][0]
    accepted = hostile.accepted(base, cases[script])  # or it raises something else
    assert plain in accepted
    assert {
        c.flag for c in accepted if c.value == hostile.MUCH and _is_whole(c)
    } <= FREE
    assert sorted(os.listdir(base / script)) == before


def _is_whole(case):
    fields = dataclasses.fields(importlib.import_module(case.script).Options)
    return any(f.name == case.flag and "int" in str(f.type) for f in fields)


@pytest.mark.parametrize("script", hostile.SCRIPTS)
def test_a_flag_that_is_declared_anew_keeps_its_bounds(script):
    """A script may give the flags of all scripts other defaults, but no other meaning."""
    script_options = importlib.import_module(script).Options
    for item in dataclasses.fields(script_options):
        for base in script_options.__mro__[1:]:
            if first := getattr(base, "__dataclass_fields__", {}).get(item.name):
                ours, theirs = dict(item.metadata), dict(first.metadata)
                # What identifies a run may differ between kinds of runs.
                same = dict.fromkeys(("help", "identity"), "")
                assert ours | same == theirs | same, item.name


@pytest.mark.parametrize(
    ("number", "trains"),
    [(4, False), pytest.param(100, True, marks=pytest.mark.exhaustive)],
)
def test_what_is_accepted_ends_well(number, trains, given):
    base, by_script = given
    cases = [
        case
        for case in itertools.chain(*by_script.values())
        if case.script not in hostile.ONLY_READ
        and (trains or not case.script.startswith("run_"))
        and case.value not in hostile.ADDRESSES
    ]
    chosen = hostile.sample(hostile.accepted(base, cases), number)
    outcomes = hostile.run(base, chosen, seconds=300, untraced=True)
    assert not [hostile.described(o) for o in outcomes if not hostile.is_good(o)]
