"""What --dry_run says about records, and that it leaves nothing."""

import bz2
import functools
import gzip
import io
import itertools
import json
import os
import pathlib
import tempfile
import time

import numpy as np
import pytest

import create_pretraining_data
from errors import UserError
from files import compression, sources
from tests import jobs
from tests.text.corpus.dumps import dump, multistream, page
from tests.text.corpus.tables_of_texts import arrow, parquet
from tests.text.generation.settings import TEXT, VOCAB_FILE, make_settings
from text.corpus import line_formats, sample, wikipedia
from text.corpus.formats import TextOptions
from text.generation import estimation, stages
from text.generation.generate import generate
from text.instances.table import INSTANCES
from text.records import descriptions

KINDS = {
    "pairs": {"dupe_factor": 3},
    "pairs, packed, 40 files": {"gzip_compress": True},
    "pairs, long, 40 files": {"max_seq_length": 64, "dupe_factor": 1},
    "full_sentences": {"masking": "dynamic", "dupe_factor": 1},
    "doc_sentences": {},
    "sentence_order": {"ngram": 3, "do_whole_word_mask": True},
    "electra": {"masking": "dynamic"},
    "pairs, spaces": {"do_whole_word_mask": True, "word_boundaries": "spaces"},
}
KINDS = {
    kind: changes
    for kind, changes in KINDS.items()
    if kind.partition(",")[0] in INSTANCES
}
_ROWS = 700  # of a segment, in these tests


@functools.cache
def corpus(documents=700, seed=0):
    """Documents of 1 to 20 sentences of 3 to 20 words: about 400 kB."""
    rng = np.random.default_rng(seed)
    words = [w for w in pathlib.Path(VOCAB_FILE).read_text().split() if w.isalpha()]
    words = iter(rng.choice(words, 150 * documents).tolist())

    def sentence():
        return " ".join(itertools.islice(words, int(rng.integers(3, 20))))

    return "\n\n".join(
        "\n".join(sentence() for _ in range(rng.integers(1, 20)))
        for _ in range(documents)
    )


@pytest.fixture
def small_sample(monkeypatch):
    """A quarter of the corpus; segments so short that files are joined of them."""
    monkeypatch.setattr(sample, "_BYTES", 100_000)
    monkeypatch.setattr(stages, "SEGMENT_ROWS", _ROWS)


@pytest.fixture
def largest(folder, monkeypatch):
    """Follows the sizes of the work folder; returns their maximum."""
    sizes = [0]

    def measured(original):
        def measure(path, *rest):
            work = pathlib.Path(path).parent
            if work.parent == folder and work.name.endswith(descriptions.UNFINISHED):
                files = [f for f in work.iterdir() if f.suffix != ".json"]
                sizes.append(sum(f.stat().st_size for f in files))
            return original(path, *rest)

        return measure

    monkeypatch.setattr(os, "remove", measured(os.remove))
    return lambda: max(sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_foretells_the_records(folder, small_sample, largest, kind):
    (folder / "text.txt").write_text(corpus())
    files = 40 if "40 files" in kind else 2
    settings = make_settings(
        folder,
        instances=kind.partition(",")[0],
        output_files=tuple(f"{folder}/out-{i}" for i in range(files)),
        **KINDS[kind],
    )
    before = sorted(folder.iterdir())
    needs = estimation.estimate(settings)
    assert sorted(folder.iterdir()) == before
    assert needs.taken.size == pytest.approx(100_000, rel=0.1)
    assert needs.taken.total == (folder / "text.txt").stat().st_size
    description, _ = generate(settings)
    counts = description.counts
    size = sum(output["bytes"] for output in description.outputs)
    assert needs.documents == pytest.approx(counts["documents"], rel=0.15)
    assert needs.tokens == pytest.approx(counts["tokens"], rel=0.03)
    assert needs.records == pytest.approx(description.instances, rel=0.1)
    assert needs.record_bytes == pytest.approx(size, rel=0.1)
    assert needs.work_bytes == pytest.approx(largest(), rel=0.06)


@pytest.mark.parametrize(
    "kind", sorted({"pairs", "full_sentences", "sentence_order"} & INSTANCES.keys())
)
def test_a_text_within_the_sample_is_told_exactly(folder, kind):
    (folder / "text.txt").write_text(corpus(documents=60))
    settings = make_settings(folder, instances=kind)
    needs = estimation.estimate(settings)
    description, _ = generate(settings)
    assert needs.taken.size == needs.taken.total
    assert needs.documents == description.counts["documents"] == 60
    assert needs.tokens == description.counts["tokens"]
    assert needs.records == description.instances
    if needs.records <= stages.BATCH_ROWS:
        assert round(needs.record_bytes) == description.outputs[0]["bytes"]


def test_many_small_files_and_json(folder, small_sample):
    documents = corpus().split("\n\n")
    for number, document in enumerate(documents):
        (folder / f"{number}.doc").write_text(document)
    paths = tuple(sorted(map(str, folder.glob("*.doc"))))
    by_file = estimation.estimate(
        make_settings(folder, input_files=paths, input_format="files")
    )
    assert (by_file.documents, by_file.taken.num_files) == (len(documents),) * 2
    lines = (json.dumps({"text": document}) for document in documents)
    (folder / "text.txt").write_text("\n".join(lines))
    by_line = estimation.estimate(make_settings(folder, input_format="jsonl"))
    assert by_line.documents == pytest.approx(len(documents), rel=0.1)
    assert by_line.tokens == pytest.approx(by_file.tokens, rel=0.05)


@pytest.mark.parametrize("number", [1, 5])
def test_packed_text_is_judged_by_its_packed_bytes(folder, monkeypatch, number):
    monkeypatch.setattr(sample, "_BYTES", 400_000)
    text, paths = "", []
    for part in range(number):
        content = corpus(1_500 // number, part)
        paths.append(folder / f"{part}.gz")
        paths[-1].write_bytes(gzip.compress(content.encode(), mtime=0))
        text += content + "\n\n"
    (folder / "text.txt").write_text(text)
    plain = make_settings(folder)
    packed = make_settings(folder, input_files=tuple(map(str, paths)))
    description, _ = generate(plain)
    needs = estimation.estimate(packed)
    assert needs.taken.total == sum(path.stat().st_size for path in paths)
    assert needs.taken.size < needs.taken.total / 2
    assert needs.tokens == pytest.approx(description.counts["tokens"], rel=0.1)
    assert needs.records == pytest.approx(description.instances, rel=0.12)


def texts():
    return corpus().split("\n\n")


def pages():
    return [page(text.replace("\n", ".\n\n")) for text in texts()]


OTHERS = {
    "dump.xml": ("wikipedia", lambda: dump(*pages())),
    "dump-multistream.xml.bz2": ("wikipedia", lambda: multistream(pages(), 10)),
    "dump.xml.bz2": ("wikipedia", lambda: bz2.compress(dump(*pages()), 1)),
    "dump.xml.gz": ("wikipedia", lambda: gzip.compress(dump(*pages()))),
    "text.parquet": ("parquet", lambda: parquet(texts(), 90)),
    "one-group.parquet": ("parquet", lambda: parquet(texts(), 10_000)),
    "text.arrow": ("arrow", lambda: arrow(texts(), 40)),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OTHERS)
def test_a_sample_of_other_formats_foretells_the_records(folder, monkeypatch, name):
    monkeypatch.setattr(sample, "_BYTES", 150_000)
    monkeypatch.setattr(sample, "_WINDOWS", 12)
    monkeypatch.setattr(wikipedia, "_CHUNK", 1_000)
    monkeypatch.setattr(compression, "_READ_BYTES", 2_000)
    pytest.importorskip("mwparserfromhell")
    input_format, content = OTHERS[name]
    (folder / name).write_bytes(content())
    settings = make_settings(
        folder, input_files=(str(folder / name),), input_format=input_format
    )
    needs = estimation.estimate(settings)
    description, _ = generate(settings)
    assert 0.05 < needs.taken.size / needs.taken.total < 0.75
    assert needs.documents == pytest.approx(description.counts["documents"], rel=0.12)
    assert needs.tokens == pytest.approx(description.counts["tokens"], rel=0.12)
    assert needs.records == pytest.approx(description.instances, rel=0.12)
    is_sequential = name in ("dump.xml.bz2", "dump.xml.gz")
    said = "\n".join(needs.lines())
    assert ("read only at the beginning of" in said) == is_sequential


@pytest.mark.parametrize("name", OTHERS)
def test_a_small_file_of_another_format_is_told_exactly(folder, name):
    pytest.importorskip("mwparserfromhell")
    input_format, content = OTHERS[name]
    (folder / name).write_bytes(content())
    paths = (str(folder / name),)
    settings = make_settings(folder, input_files=paths, input_format=input_format)
    needs = estimation.estimate(settings)
    assert needs.taken.is_whole and needs.documents == 700


def test_the_sample_is_bounded_and_comes_from_everywhere(folder, monkeypatch):
    monkeypatch.setattr(sample, "_BYTES", 64_000)
    numbers = range(200_000)
    (folder / "text.txt").write_text("".join(f"{n:9d}\n" for n in numbers))
    read, opened = [], sources.open_file

    class Counted(io.FileIO):
        def readinto(self, buffer):
            place = self.tell()
            read.append((place, super().readinto(buffer)))
            return read[-1][1]

    def opened_and_counted(path):
        if path.endswith("text.txt"):
            return io.BufferedReader(Counted(path), buffer_size=16)
        return opened(path)

    monkeypatch.setattr(sources, "open_file", opened_and_counted)
    needs = estimation.estimate(make_settings(folder, input_format="paragraphs"))
    assert 60_000 < needs.taken.size <= sum(size for _, size in read) < 70_000
    places = [place for place, size in read if size > 1000]
    middles = [2_000_000 * (i + 0.5) / 32 for i in range(32)]
    assert places == pytest.approx(middles, abs=1_100)
    assert any("all of the text is one document" in w for w in needs.warnings)


BAD = {
    "not UTF-8": (TEXT.encode() + b"\n\xff\n", {}),
    "only be one document": (b"The one.\nThe other.\n", {}),
    "empty": (b"", {}),
    "blank": (b" \n\n", {}),
    "not JSON": (b'{"text": "It is."}\n{"a\n', {"input_format": "jsonl"}),
    "damaged": (gzip.compress(TEXT.encode())[:-20], {"input_files": "text.gz"}),
    "too many files": (TEXT.encode(), {"output_files": 400}),
    "a folder": (TEXT.encode(), {"output_files": ""}),
    "the input": (TEXT.encode(), {"output_files": "text.txt"}),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_a_run_refuses_is_refused_alike(folder, kind):
    content, changed = BAD[kind]
    changed = dict(changed)
    (folder / "text.txt").write_bytes(content)
    (folder / "text.gz").write_bytes(content)
    if "input_files" in changed:
        changed["input_files"] = (str(folder / changed["input_files"]),)
    output = changed.get("output_files")
    if isinstance(output, str):
        changed["output_files"] = (str(folder / output),)
    elif output:
        changed["output_files"] = tuple(f"{folder}/{i}" for i in range(output))
    settings = make_settings(folder, **changed)
    with pytest.raises(UserError) as foretold:
        estimation.estimate(settings)
    with pytest.raises(UserError) as found:
        generate(settings)
    assert str(foretold.value) == str(found.value)


def test_a_wrong_line_far_into_a_file_has_its_number(folder, small_sample):
    lines = ["It is so."] * 40_000
    (folder / "text.txt").write_bytes("\n".join(lines).encode() + b"\n\xff")
    content = bytearray((folder / "text.txt").read_bytes())
    at = sample.take([str(folder / "text.txt")], TextOptions()).parts[20][0].start + 100
    content[at] = 0xFF
    (folder / "text.txt").write_bytes(content)
    with pytest.raises(UserError, match=f"text.txt:{at // 10 + 1}: not UTF-8"):
        estimation.estimate(make_settings(folder))


def test_a_line_too_long_to_sample_is_refused(folder, small_sample, monkeypatch):
    monkeypatch.setattr(line_formats, "_LONGEST_SAMPLED_LINE", 50_000)
    (folder / "text.txt").write_text("It is. " * 100_000)
    with pytest.raises(UserError, match="text.txt: a line is longer than 50,000 bytes"):
        estimation.estimate(make_settings(folder))


def test_the_script_says_it_and_leaves_nothing(folder, monkeypatch, capsys):
    (folder / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    flags = {
        "input_file": [str(folder / "text.txt")],
        "output_file": [str(folder / "new" / "out@3")],
        "vocab_file": VOCAB_FILE,
        "num_workers": 2,
        "max_seq_length": 24,
        "dry_run": True,
    }
    before = sorted(folder.rglob("*"))
    jobs.run(create_pretraining_data, flags)
    assert sorted(folder.rglob("*")) == before
    said = capsys.readouterr().out.splitlines()
    assert said[-5].startswith("text: 12 documents, ")
    assert said[-4].startswith("records: ")
    assert "in 10 pass(es)" in said[-4]
    assert "with 2 process(es)" in said[-1]


@pytest.mark.parametrize(
    ("given", "seconds"), [((1, 1), 30), ((2, 1), 20), ((2, 4), 12.5), ((8, 1), 20)]
)
def test_processes_and_shards_share_all_but_loading(
    folder, monkeypatch, given, seconds
):
    (folder / "text.txt").write_text(corpus(documents=60))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    # Ten seconds of loading, of tokenizing the whole text, and of its rows.
    monkeypatch.setattr(time, "process_time", iter([10.0, 20.0, 30.0]).__next__)
    needs = estimation.estimate(make_settings(folder), *given)
    assert needs.workers == given[0] * given[1]
    assert needs.seconds == seconds
    assert needs.processor_seconds == 10 * needs.workers + 20
