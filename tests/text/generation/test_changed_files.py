"""Text and vocabularies that change while they are read."""

import gzip
import os
import shutil
import threading

import pytest

from errors import UserError
from files import local
from files.sources import ChangedFileError
from tests.text.generation.settings import TEXT, VOCAB_FILE, made_in, make_settings
from tests.text.generation.shards import together
from text.corpus import line_formats
from text.generation import generate as generation_run
from text.generation import outputs, stages, work
from text.generation.generate import generate


def append(path):
    with open(path, "ab") as file:
        file.write(b"One more line.\n")


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def write_within(path):
    with open(path, "r+b") as file:
        file.write(b"X")


def replace(path):
    """With a file of equal size and time."""
    times = path.stat().st_mtime_ns
    content = path.read_bytes()
    other = path.with_name("other")
    other.write_bytes(content[:-3] + b"xyz")
    os.utime(other, ns=(times, times))
    os.replace(other, path)


def dying_at(number, change, monkeypatch):
    """From the piece of this number on, the text is another one; notes the pieces."""
    done = []

    def tokenize(prefix, *rest, original=stages.tokenize):
        done.append(os.path.basename(prefix))
        if len(done) == number:
            change()
        return original(prefix, *rest)

    monkeypatch.setattr(stages, "tokenize", tokenize)
    return done


@pytest.fixture(params=["text.txt", "text.txt.gz"])
def text(request, folder, many_tasks, monkeypatch):
    """A file of several pieces; a packed one is unpacked by the first process."""
    monkeypatch.setattr(line_formats, "_MANY_FILES", 100)
    path = folder / request.param
    if request.param.endswith(".gz"):
        path.write_bytes(gzip.compress(TEXT.encode(), compresslevel=0))
    return path


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("change", [append, truncate, write_within, replace])
def test_text_that_changes_is_refused_until_it_is_restored(
    text, folder, tmp_path_factory, monkeypatch, change, number
):
    settings = make_settings(folder, input_files=(str(text),))
    kept = tmp_path_factory.mktemp("kept") / "text"
    shutil.copy2(text, kept)
    generate(settings)
    expected = {name: made_in(folder)[name] for name in made_in(folder)}
    for path in settings.output_files[0], settings.description_file:
        os.remove(path)
    with monkeypatch.context() as patch:
        done = dying_at(number, lambda: change(text), patch)
        with pytest.raises(ChangedFileError, match=f"{text.name}: has changed while"):
            generate(settings)
    assert not {"out.tfrecord", "out.tfrecord.description.json"} & {*os.listdir(folder)}
    if change is not replace:  # which no later run can tell
        with pytest.raises(UserError, match="changed input files .* add --overwrite"):
            generate(settings)
    shutil.copy2(kept, text)
    with monkeypatch.context() as patch:
        again = dying_at(0, None, patch)
        generate(settings)
    assert set(done) & set(again) <= {done[-1]}  # what was noted before is good
    found = made_in(folder)
    assert found.keys() == expected.keys()
    assert found["out.tfrecord"] == expected["out.tfrecord"]


def test_text_that_has_changed_for_good_is_read_anew(folder, many_tasks, monkeypatch):
    settings = make_settings(folder)
    text = folder / "text.txt"
    with monkeypatch.context() as patch:
        dying_at(3, lambda: truncate(text), patch)
        with pytest.raises(ChangedFileError):
            generate(settings)
    found, _ = generate(settings, overwrite=True)
    for path in settings.output_files[0], settings.description_file:
        os.remove(path)
    assert found == generate(settings)[0]


def test_text_may_not_change_before_it_is_cut(folder, monkeypatch):
    text = folder / "text.txt"

    def changed(paths, origin, original=outputs.statuses):
        append(text)
        return original(paths, origin)

    monkeypatch.setattr(outputs, "statuses", changed)
    with pytest.raises(ChangedFileError, match="text.txt: input files have changed"):
        generate(make_settings(folder))


def test_a_shard_does_not_wait_for_one_that_found_a_change(
    folder, many_tasks, monkeypatch
):
    monkeypatch.setattr(work, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(generation_run, "_SECONDS_BETWEEN_LOOKS", 0.1)
    settings = make_settings(folder)
    text = folder / "text.txt"
    shutil.copy2(text, folder / "kept")

    def tokenize(prefix, *rest, original=stages.tokenize):
        if threading.current_thread().name == "1":
            append(text)  # shard 0 may have done its pieces
        return original(prefix, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "tokenize", tokenize)
        ended = together(settings)
    assert [type(ended[i]) for i in (0, 1)] == [ChangedFileError] * 2
    shutil.copy2(folder / "kept", text)
    ended = together(settings)
    assert ended[0][0] == ended[1][0]
    for name in os.listdir(folder):
        if name not in ("text.txt", "kept"):
            os.remove(folder / name)
    assert ended[0][0] == generate(settings)[0]


def test_a_vocabulary_that_changes_while_workers_start_is_refused(folder, monkeypatch):
    vocabulary = folder / "vocab.txt"
    shutil.copy2(VOCAB_FILE, vocabulary)

    def changed(self, original=work.WorkFolder.begin):
        original(self)
        vocabulary.write_text(vocabulary.read_text() + "another\n")

    monkeypatch.setattr(work.WorkFolder, "begin", changed)
    with pytest.raises(ChangedFileError, match="vocab.txt: has changed while it was"):
        generate(make_settings(folder, vocab_file=str(vocabulary)))


def test_nothing_is_read_before_other_processes_are_kept_out(folder, monkeypatch):
    """A process may be stopped anywhere, while another does all of the work."""
    settings = make_settings(folder, output_files=(f"{folder}/new/out.tfrecord",))

    def make_tokenizer(self):
        with pytest.raises(UserError, match="in use by process"):
            with local.hold_lock(settings.description_file):
                pass
        raise UserError("no tokenizer")

    monkeypatch.setattr(type(settings), "make_tokenizer", make_tokenizer)
    with pytest.raises(UserError, match="no tokenizer"):
        generate(settings)
    assert os.listdir(folder) == ["text.txt"]  # the refused process leaves no trace
