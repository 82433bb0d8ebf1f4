"""Text to records: what no interruption may change, and what is there already."""

import os
import pathlib

import pytest

from errors import UserError
from files import local
from tests import tiers
from tests.killed import Killed
from tests.text.generation.settings import TEXT, VOCAB_FILE, made_in, make_settings
from text.generation import stages
from text.generation.generate import generate
from text.records.descriptions import Description
from text.tokenizers.vocabulary import Vocabulary


@pytest.mark.parametrize("before", tiers.cases([True, False], [True]))
def test_killed_at_any_rename_it_ends_with_the_same_bytes(
    folder, many_tasks, monkeypatch, before
):
    outputs = tuple(f"{folder}/out-{i}" for i in range(2))
    settings = make_settings(folder, output_files=outputs, dupe_factor=1)
    generate(settings)
    undisturbed = made_in(folder)
    replace = os.replace
    renames = 0

    def replace_or_die(source, target):
        nonlocal renames, alive
        renames += 1
        alive -= 1
        if before and alive < 0:
            raise Killed
        replace(source, target)
        for path in outputs:  # under its name a file is whole
            whole = undisturbed[os.path.basename(path)]
            assert not os.path.exists(path) or pathlib.Path(path).read_bytes() == whole
        if alive < 0:
            raise Killed

    monkeypatch.setattr(os, "replace", replace_or_die)
    survived = 0
    while survived >= 0:
        for name in undisturbed:
            (folder / name).unlink()
        alive = survived
        try:
            generate(settings)
            survived = -1
        except Killed:
            survived += 1
            alive = 1 << 30
            generate(settings)
        assert made_in(folder) == undisturbed
    assert renames > 500  # some forty, each a place to end


def test_started_again_it_does_only_what_is_missing(folder, many_tasks, monkeypatch):
    settings = make_settings(folder)
    write = stages.write

    def fail(*_):
        raise Killed

    monkeypatch.setattr(stages, "write", fail)
    with pytest.raises(Killed):
        generate(settings)
    monkeypatch.setattr(stages, "write", write)
    for name in ("tokenize", "join_corpus", "plan", "join_plan"):
        monkeypatch.setattr(stages, name, fail)
    description, was_there = generate(settings)
    assert not was_there and description.counts["sentences"] == 108


def test_a_finished_run_is_known(folder, capsys):
    settings = make_settings(folder)
    first, _ = generate(settings)
    before = made_in(folder)
    again, was_there = generate(settings)
    assert was_there and again == first and made_in(folder) == before


def test_outputs_of_other_settings_are_kept(folder):
    generate(make_settings(folder))
    before = made_in(folder)
    with pytest.raises(UserError, match=r"exists \(different: --random_seed=1 there"):
        generate(make_settings(folder, random_seed=2))
    assert made_in(folder) == before
    # What --overwrite replaces stays until there is something to replace it.
    (folder / "text.txt").write_text("")
    with pytest.raises(UserError, match="text.txt: no line of the 1 input"):
        generate(make_settings(folder), overwrite=True)
    assert made_in(folder) == before
    (folder / "text.txt").write_text(TEXT[1:])
    generate(make_settings(folder), overwrite=True)
    after = made_in(folder)
    assert after.keys() == before.keys() and after != before


def test_large_outputs_are_replaced_together(folder, many_tasks, monkeypatch):
    settings = make_settings(folder, random_seed=2)
    generate(settings)
    expected = made_in(folder)
    generate(make_settings(folder), overwrite=True)
    write = stages.write
    monkeypatch.setattr(stages, "write", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generate(settings, overwrite=True)
    # No old description stands beside what the new run has begun to write.
    assert set(made_in(folder / "out.tfrecord.work")) >= {"origin.json", "plan.rows"}
    assert [path.name for path in folder.iterdir() if path.is_file()] == ["text.txt"]
    monkeypatch.setattr(stages, "write", write)
    generate(settings)
    assert made_in(folder) == expected


@pytest.mark.parametrize("description", ["", "[]", "{}", '{"origin": 7}'])
def test_a_file_that_is_no_description_is_kept(folder, description):
    (folder / "out.tfrecord.description.json").write_text(description)
    (folder / "out.tfrecord").write_text("precious")
    before = made_in(folder)
    with pytest.raises(UserError, match="tfrecord: already exists; add --overwrite"):
        generate(make_settings(folder))
    assert made_in(folder) == before


def test_a_damaged_output_is_not_finished(folder):
    settings = make_settings(folder)
    generate(settings)
    whole = made_in(folder)
    (folder / "out.tfrecord").write_bytes(b"")
    with pytest.raises(UserError, match="tfrecord: already exists; add --overwrite"):
        generate(settings)
    generate(settings, overwrite=True)
    assert made_in(folder) == whole


def interrupt(settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            generate(settings)


def test_an_unfinished_run_goes_on_with_its_own_settings_only(folder):
    interrupt(make_settings(folder))
    with pytest.raises(UserError, match="unfinished run with other settings") as error:
        generate(make_settings(folder, masked_lm_prob=0.2))
    assert "--masked_lm_prob=0.15 there, 0.2 here" in str(error.value)

    vocabulary = folder / "vocab.txt"
    vocabulary.write_text(pathlib.Path(VOCAB_FILE).read_text() + "another\n")
    with pytest.raises(UserError, match="different: .*a different vocabulary"):
        generate(make_settings(folder, vocab_file=str(vocabulary)))

    (folder / "text.txt").write_text(TEXT + " More.")
    with pytest.raises(UserError, match="other or changed input files"):
        generate(make_settings(folder))
    description, _ = generate(make_settings(folder), overwrite=True)
    assert description.counts["sentences"] == 108
    made = {"out.tfrecord", "out.tfrecord.description.json", "vocab.txt"}
    assert set(made_in(folder)) == made


def test_what_differs_from_finished_records_is_said(folder):
    settings = make_settings(folder)
    generate(settings)
    (folder / "text.txt").write_text(TEXT[1:])
    with pytest.raises(UserError, match="changed input files .1 with 4,348 bytes"):
        generate(settings)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("origin", [None, "7", "{}", '{"flags": {}}'])
def test_a_folder_of_something_else_is_not_touched(folder, origin, overwrite):
    place = folder / "out.tfrecord.work"
    (place / "sub").mkdir(parents=True)
    (place / "corpus.json").write_text("{}")
    if origin:
        (place / "origin.json").write_text(origin)
    before = made_in_folders(folder)
    with pytest.raises(UserError, match=r"contains something else \("):
        generate(make_settings(folder), overwrite=overwrite)
    assert made_in_folders(folder) == before


def made_in_folders(folder):
    return {p: p.is_file() and p.read_bytes() for p in folder.glob("**/*")}


def test_a_file_in_the_folder_s_place_is_kept(folder):
    (folder / "out.tfrecord.work").write_text("precious")
    with pytest.raises(UserError, match="but contains something else"):
        generate(make_settings(folder), overwrite=True)
    assert (folder / "out.tfrecord.work").read_text() == "precious"


def test_a_finished_run_leaves_a_folder_of_something_else_alone(folder):
    settings = make_settings(folder)
    generate(settings)
    place = folder / "out.tfrecord.work"
    place.mkdir()
    (place / "corpus.json").write_text("precious")
    _, was_there = generate(settings)
    assert was_there and (place / "corpus.json").read_text() == "precious"


def test_what_others_put_into_the_folder_stays(folder, capsys):
    interrupt(make_settings(folder))
    place = folder / "out.tfrecord.work"
    (place / "plan.pairs.bak").write_text("precious")
    (place / "corpus.documents.d").mkdir()
    generate(make_settings(folder, random_seed=2), overwrite=True)
    left = sorted(p.name for p in place.iterdir())
    assert left == ["corpus.documents.d", "plan.pairs.bak"]
    said = "not removed, because it contains other files (corpus.documents.d,"
    assert said in capsys.readouterr().err


def test_an_empty_folder_is_taken(folder):
    (folder / "out.tfrecord.work").mkdir()
    generate(make_settings(folder))
    assert set(made_in(folder)) == {"out.tfrecord", "out.tfrecord.description.json"}


def test_killed_at_any_removal_it_ends_with_the_same_bytes(folder, monkeypatch):
    other = make_settings(folder, random_seed=2)
    settings = make_settings(folder)
    generate(settings)
    undisturbed = made_in(folder)
    remove = os.remove

    def remove_or_die(path):
        nonlocal alive
        alive -= 1
        if alive < 0:
            raise Killed
        remove(path)

    monkeypatch.setattr(os, "remove", remove_or_die)
    alive, survived, kills = 1 << 30, 0, -1
    while survived >= 0:
        kills += 1
        for name in undisturbed:
            (folder / name).unlink()
        interrupt(other)  # what it left is removed at the beginning
        alive = survived
        try:
            generate(settings, overwrite=True)
            survived = -1
        except Killed:
            survived += 1
            alive = 1 << 30
            generate(settings, overwrite=True)
        alive = 1 << 30
        assert made_in(folder) == undisturbed
    assert kills > 20


def test_what_a_killed_process_left_beside_the_outputs_goes(folder):
    for name in ("out.tfrecord", "out.tfrecord.description.json"):
        own = os.path.basename(local.temporary_name(name))
        (folder / own.replace(str(os.getpid()), "4194305")).write_text("half")
    generate(make_settings(folder))
    assert set(made_in(folder)) == {"out.tfrecord", "out.tfrecord.description.json"}


def test_the_description_says_what_was_made(folder):
    settings = make_settings(folder)
    generate(settings)
    description = Description.read(f"{folder}/out.tfrecord.description.json")
    vocabulary = Vocabulary.load(VOCAB_FILE)
    assert description.max_seq_length == 24
    assert description.max_predictions_per_seq == 4
    assert description.vocab_size == 2941
    assert description.vocab_sha256 == vocabulary.digest
    (output,) = description.outputs
    assert output["file"] == "out.tfrecord"
    assert output["bytes"] == (folder / "out.tfrecord").stat().st_size
    assert output["instances"] == description.instances > 20
    assert description.origin["flags"]["random_seed"] == 1
