"""Several runs that write the same records together."""

import os
import shutil
import signal
import threading
import time

import pytest

from errors import UserError
from files import local
from tests import jobs
from tests.text.generation.settings import VOCAB_FILE, made_in, make_settings
from tests.text.generation.shards import thread_of, together
from text.generation import generate as generation_run
from text.generation import outputs, stages, work
from text.generation.generate import generate


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch):
    monkeypatch.setattr(work, "_POLL_SECONDS", 0.01)


@pytest.fixture
def settings(folder, many_tasks):
    outputs = tuple(f"{folder}/out-{i}" for i in range(3))
    return make_settings(folder, output_files=outputs, dupe_factor=4)


@pytest.mark.parametrize(("number", "order"), [(2, [1, 0]), (3, [2, 0, 1])])
def test_shards_write_the_bytes_of_one_run(settings, folder, number, order):
    described, _ = generate(settings)
    expected = made_in(folder)
    for path in expected:
        (folder / path).unlink()
    done = []

    def counted(prefix, *rest, original=stages.write):
        done.append(os.path.basename(prefix))
        return original(prefix, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "write", counted)
        ended = together(settings, number, order)
    assert [ended[index][0] for index in range(number)] == [described] * number
    assert made_in(folder) == expected
    assert len(done) == len(set(done)) > number  # each task was done by one shard


def test_shards_that_disagree_on_their_number_are_refused(settings, monkeypatch):
    monkeypatch.setattr(generation_run, "_SECONDS_TO_AGREE", 0.5)
    leading = thread_of(settings, 0)
    leading.start()
    message = "--num_shards=3, but shard 0 has --num_shards=2; all must have the same"
    with pytest.raises(UserError, match=message):
        generate(settings, shard=(1, 3))
    assert leading.is_alive()  # it waits for a shard that is not refused
    description, _ = generate(settings, shard=(1, 2))
    leading.join(60)
    assert description == generate(settings)[0]


@pytest.fixture
def begun(settings):
    """What shard 0 leaves in the work folder at its beginning."""
    origin = outputs.origin(settings, settings.load_tokenizer(VOCAB_FILE).vocabulary)
    folder = work.WorkFolder(settings.work_folder, origin, stages.MADE)
    folder.begin()
    return folder


def test_another_number_of_shards_continues_the_work(settings, begun):
    begun.share_among(2)
    ended = together(settings, 3)
    assert not any(isinstance(result, UserError) for result in ended.values())


def test_each_shard_does_its_part(settings, folder, monkeypatch):
    by_shard = {}

    def noting(self, task, original=work.Workers._submit):
        by_shard.setdefault(self.share.index, []).append(task[0])
        return original(self, task)

    monkeypatch.setattr(work.Workers, "_submit", noting)
    together(settings, 3)
    sizes = [len(by_shard[index]) for index in range(3)]
    assert min(sizes) > 0.8 * max(sizes) and min(sizes) > 5


def test_a_shard_that_comes_late_finds_everything_finished(settings, folder):
    described, _ = generate(settings)
    found = made_in(folder)
    assert generate(settings, shard=(1, 2)) == (described, False)
    assert made_in(folder) == found


def test_an_error_of_one_shard_ends_all(settings, folder):
    (folder / "text.txt").write_bytes(b"One line.\n" * 300 + b"\xff\xfe\n" * 3)
    for error in together(settings, 2).values():
        assert isinstance(error, UserError) and "UTF-8" in str(error)
    assert sorted(os.listdir(settings.work_folder)) == ["failed.json", "origin.json"]
    (folder / "text.txt").write_bytes(b"A word.\nTwo words.\n\n" * 200)
    for ended in together(settings, 2, [1, 0]).values():
        assert not isinstance(ended, UserError), ended
    assert not os.path.exists(settings.work_folder)


def test_a_shard_may_look_just_as_the_leading_one_ends(settings, folder, monkeypatch):
    leading = thread_of(settings, 0)

    def slow(*given, original=generation_run.outputs.find_finished):
        found = original(*given)
        if threading.current_thread() is not leading:
            leading.join(0.5)  # what was found is old now
        return found

    monkeypatch.setattr(generation_run.outputs, "find_finished", slow)
    leading.start()
    description, _ = generate(settings, shard=(1, 2))
    leading.join()
    assert description == generate(settings)[0]


def test_a_shard_may_look_just_as_the_leading_one_begins(settings, monkeypatch):
    leading = thread_of(settings, 0)

    def late(*given, original=generation_run.outputs.refuse_what_is_there):
        if threading.current_thread() is not leading and not leading.ident:
            leading.start()
            while leading.is_alive() and not os.path.exists(settings.settings_file):
                time.sleep(0.01)
        return original(*given)

    monkeypatch.setattr(generation_run.outputs, "refuse_what_is_there", late)
    description, _ = generate(settings, shard=(1, 2))
    leading.join()
    assert description == generate(settings)[0]


def test_a_failed_run_does_not_free_the_outputs_of_another(settings, folder):
    generate(settings)
    records = made_in(folder)
    (folder / "text.txt").write_text(" ")
    for shard in ((0, 2), (1, 2)):
        with pytest.raises(UserError, match="no line of the|--overwrite"):
            generate(settings, overwrite=not shard[0], shard=shard)
    (folder / "text.txt").write_text("A word.\nTwo words.\n\n" * 200)
    for index in range(2):
        with pytest.raises(UserError, match="already exists .*add --overwrite"):
            generate(settings, shard=(index, 2))
    shutil.rmtree(settings.work_folder)
    assert made_in(folder) == records


def test_a_shard_ends_if_the_first_gives_up(settings, folder):
    (folder / "text.txt").write_text("\n \n")
    for order in ([0, 1, 2], [2, 1, 0]):
        for error in together(settings, 3, order).values():
            assert isinstance(error, UserError) and "no line" in str(error)
    with pytest.raises(UserError, match="no line"):  # alone, it cleans up
        generate(settings)
    assert not made_in(folder)


def other_flags(settings, folder):
    return make_settings(folder, output_files=settings.output_files, dupe_factor=5)


def test_a_shard_with_other_flags_than_finished_ones_is_refused(settings, folder):
    generate(settings)
    found = made_in(folder)
    with pytest.raises(UserError, match="--dupe_factor=4 there, 5 here"):
        generate(other_flags(settings, folder), shard=(1, 2))
    assert made_in(folder) == found


def test_a_shard_with_other_flags_is_refused(settings, folder, begun):
    with pytest.raises(UserError, match="--dupe_factor=4 there, 5 here"):
        generate(other_flags(settings, folder), shard=(1, 2))


def test_the_same_shard_does_not_run_twice(settings, begun):
    begun.share_among(2)
    local.write_json(settings.settings_file, {})
    with local.hold_lock(f"{settings.work_folder}/shard-1"):
        before = sorted(os.listdir(settings.work_folder))
        with pytest.raises(UserError, match="shard-1: in use by process"):
            generate(settings, shard=(1, 2))
        # No trace: the shards at work would take it for their end.
        assert sorted(os.listdir(settings.work_folder)) == before
    shutil.rmtree(settings.work_folder)


def test_a_shard_at_work_keeps_others_from_starting_over(settings, folder, begun):
    other = other_flags(settings, folder)
    with local.hold_lock(f"{settings.work_folder}/shard-1"):
        with pytest.raises(UserError, match="shard-1: in use by process"):
            generate(other, overwrite=True, shard=(0, 2))
    generate(other, overwrite=True)


@pytest.mark.exhaustive
def test_killed_shards_continue(tmp_path):
    text = "\n\n".join(
        "\n".join(f"Line {n} of text {d} says so." for n in range(60))
        for d in range(600)
    )
    (tmp_path / "text.txt").write_text(text)
    flags = {
        "input_file": tmp_path / "text.txt",
        "vocab_file": VOCAB_FILE,
        "max_seq_length": 64,
        "dupe_factor": 8,
        "num_workers": 1,
    }

    def line(folder, **more):
        outputs = {"output_file": tmp_path / folder / "out@6"}
        return jobs.command("create_pretraining_data.py", flags | outputs | more)

    assert jobs.finished(line("one")).returncode == 0
    shards = [line("two", num_shards=2, shard_index=i) for i in range(2)]
    kills = 0
    # When all is tokenized, when all is planned, and when records are being written.
    for noted in ("corpus.json", "plan.json", "room.json"):
        runs = [jobs.started(shard) for shard in shards]
        while not [*(tmp_path / "two").rglob(noted)]:
            if all(run.poll() is not None for run in runs):
                break
            time.sleep(0.01)
        for run in runs:
            if run.poll() is None:
                kills += 1
                os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
    runs = [jobs.started(shard) for shard in shards]
    for run in runs:
        run.communicate(timeout=120)
    assert [run.returncode for run in runs] == [0, 0]
    assert kills >= 2
    one, two = (made_in(tmp_path / folder) for folder in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        if not name.endswith(".json"):  # which contains the names of the outputs
            assert one[name] == two[name], name
