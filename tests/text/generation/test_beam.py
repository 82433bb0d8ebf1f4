"""Generation as an Apache Beam pipeline; skipped where that is not installed."""

import bz2
import collections
import dataclasses
import functools
import gzip
import os
import pathlib
import re

import numpy as np
import pytest

from errors import UserError
from files import sources
from tests.text.corpus.dumps import dump, head, page
from tests.text.generation.settings import VOCAB_FILE, made_in, make_settings
from text.corpus import formats
from text.generation import generate as direct
from text.inspection import inspect
from text.inspection.table import make_inspector
from text.records import encoding, framing
from text.tokenizers.table import load_vocabulary

pytest.importorskip("apache_beam")
from apache_beam.io.filesystem import FileMetadata  # noqa: E402
from apache_beam.io.localfilesystem import LocalFileSystem  # noqa: E402

from text.generation import beam, beam_steps  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:apache_beam")

PROCESSES = "--direct_num_workers=2 --direct_running_mode=multi_processing"
THREADS = "--direct_num_workers=3 --direct_running_mode=multi_threading"
DYNAMIC = {"instances": "full_sentences", "masking": "dynamic", "dupe_factor": 1}
WORDS = "say that it is the of so and document".split()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Many ranges and blocks of a short text, in worker processes too."""
    sizes = {"range_bytes": 400, "block_tokens": 300, "block_documents": 3}
    monkeypatch.setattr(beam_steps, "Job", functools.partial(beam_steps.Job, **sizes))
    monkeypatch.setattr(sources, "_remote", sources._remote)
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)

    def document(most):
        sentences = range(rng.integers(1, most))
        return "".join(
            " ".join(rng.choice(WORDS, rng.integers(2, 20))) + ".\n" for _ in sentences
        )

    # The long ones are larger than a range and a block.
    texts = [document(120 if number in (0, 30) else 9) for number in range(40)]
    (tmp_path / "text.txt").write_text("\n".join(texts))
    return tmp_path


def generate(settings, beam_options="", overwrite=False):
    pipeline = beam.Pipeline("DirectRunner", beam_options)
    return pipeline.generate(settings, list(settings.input_files), overwrite)


def make(folder, **changed):
    files = tuple(f"{folder}/out-{number}" for number in range(3))
    return make_settings(folder, **{"output_files": files} | changed)


def records(settings):
    """The rows of all files before masking, without padding."""
    examples = [x for path in settings.output_files for x in framing.read(path)]
    instances = settings.make_instances()
    batch, faults = encoding.decode(examples, instances.schema())
    assert not faults
    vocabulary = load_vocabulary(settings.vocab_file)
    inspector = make_inspector(settings, vocabulary)
    text, lengths, _ = inspector.masks.unmask(batch)
    return [row[:length].tolist() for row, length in zip(text, lengths, strict=True)]


def tokens(rows):
    """How often each token of the text occurs."""
    vocabulary = load_vocabulary(VOCAB_FILE)
    found = collections.Counter(token for row in rows for token in row)
    for special in (vocabulary.cls_id, vocabulary.sep_id):
        del found[special]
    return found


def problems(settings):
    paths = list(settings.output_files)
    found = inspect.Inspection(
        load_vocabulary(VOCAB_FILE), inspect.find_descriptions(paths)
    )
    found.read(paths)
    assert found.num_records
    return found.violations.lines()


@pytest.mark.parametrize("changed", [{}, DYNAMIC], ids=["pairs", "full_sentences"])
def test_records_do_not_depend_on_who_makes_them(folder, changed):
    settings = make(folder, **changed)
    described, was_there = generate(settings)
    assert not was_there
    expected = made_in(folder)
    assert set(expected) == {"out-0", "out-1", "out-2", "out-0.description.json"}
    for workers in (PROCESSES, THREADS):
        for name in expected:
            (folder / name).unlink()
        assert generate(settings, workers) == (described, False)
        assert made_in(folder) == expected
    assert generate(settings) == (described, True)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"random_next_sentences": False, "masking": "dynamic"},
        {"do_whole_word_mask": True, "word_boundaries": "spaces"},
        {"instances": "full_sentences"},
        {"instances": "doc_sentences", "gzip_compress": True},
    ],
    ids=lambda changed: "-".join(map(str, changed.values())),
)
def test_the_validator_and_the_counts_of_the_text_agree(folder, changed):
    settings = make(folder, dupe_factor=4, **changed)
    described, _ = generate(settings)
    assert not problems(settings)
    ours = tokens(records(settings))
    plain = make(folder, dupe_factor=4, **changed, output_files=(f"{folder}/plain",))
    expected, _ = direct.generate(plain)
    of_text = [
        name for name in expected.counts if re.search("documents|sentences|tok", name)
    ]
    for name in set(of_text) & set(beam_steps.COUNTED):
        assert described.counts[name] == expected.counts[name], name
    assert described.counts.keys() == expected.counts.keys()
    sizes = [output["instances"] for output in described.outputs]
    assert sum(sizes) == described.instances and max(sizes) - min(sizes) <= 8
    if settings.instances != "pairs":
        assert ours == tokens(records(plain))  # every token is there four times
    rows = described.instances / expected.instances
    assert 0.85 < rows < 1.15


def test_every_document_is_used_once_in_each_pass(folder):
    changed = {"instances": "doc_sentences", "masking": "dynamic", "dupe_factor": 1}
    settings = make(folder, **changed)
    generate(settings)
    plain = make(folder, **changed, output_files=(f"{folder}/plain",))
    direct.generate(plain)
    ours, theirs = records(settings), records(plain)
    assert ours != theirs  # another order
    assert sorted(ours) == sorted(theirs)


def forms(folder):
    """The text in files of other formats: name, and format."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("mwparserfromhell")
    documents = (folder / "text.txt").read_text().split("\n\n")
    table = pyarrow.table({"text": documents})
    parquet.write_table(table, folder / "text.parquet", row_group_size=7)
    (folder / "saved").mkdir()
    with pyarrow.ipc.new_stream(folder / "saved" / "a.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=3)
    (folder / "saved" / "state.json").write_text(
        '{"_data_files": [{"filename": "a.arrow"}]}'
    )
    pages = [page(document.replace("\n", "\n\n")) for document in documents]
    pages[5:5] = [page("#REDIRECT [[A]]", redirect=True), page("{{disambig}} A.")]
    (folder / "dump.xml").write_bytes(dump(*pages))
    streams = head(), *("".join(pages[i : i + 5]) for i in range(0, len(pages), 5))
    with open(folder / "dump-multistream.xml.bz2", "wb") as file:
        for stream in (*streams, "</mediawiki>"):
            file.write(bz2.compress(stream.encode()))
    (folder / "dump.xml.gz").write_bytes(gzip.compress(dump(*pages)))
    for name, input_format in {
        "text.parquet": "parquet",
        "saved": "arrow",
        "dump.xml": "wikipedia",
        "dump-multistream.xml.bz2": "wikipedia",
        "dump.xml.gz": "wikipedia",
    }.items():
        yield str(folder / name), input_format


def test_the_same_documents_in_other_formats_give_the_same_records(folder):
    settings = make(folder)
    expected, _ = generate(settings)
    paths = [pathlib.Path(path) for path in settings.output_files]
    records_of_text = [path.read_bytes() for path in paths]
    for pattern, input_format in forms(folder):
        files = tuple(formats.expand([pattern], input_format))
        other = make(folder, input_files=files, input_format=input_format)
        pipeline = beam.Pipeline("DirectRunner", "")
        described, _ = pipeline.generate(other, [pattern], overwrite=True)
        assert [path.read_bytes() for path in paths] == records_of_text, pattern
        assert described.counts["tokens"] == expected.counts["tokens"]
        if input_format == "wikipedia":
            plain = dataclasses.replace(other, output_files=(f"{folder}/plain",))
            counts = direct.generate(plain, overwrite=True)[0].counts
            for name in ("pages", "redirect_pages", "disambiguation_pages"):
                assert described.counts[name] == counts[name] > 0, name


def test_what_is_refused_in_a_dump_is_one_line(folder):
    pytest.importorskip("mwparserfromhell")
    (folder / "text.txt").write_bytes(dump(page("It is so."))[:-40])
    with pytest.raises(UserError, match="text.txt: ends within a page") as raised:
        generate(make(folder, input_format="wikipedia"))
    assert "\n" not in str(raised.value) and "while running" not in str(raised.value)
    assert not made_in(folder)


def test_passes_seeds_and_blocks_differ(folder):
    settings = make(folder, masking="dynamic", dupe_factor=3)
    generate(settings)
    rows = records(settings)
    assert len(set(map(tuple, rows))) > 0.9 * len(rows)
    other = make(folder, masking="dynamic", dupe_factor=3, random_seed=2)
    generate(other, overwrite=True)
    assert not problems(other)
    assert len(set(map(tuple, rows)) & set(map(tuple, records(other)))) < 0.3 * len(
        rows
    )


@pytest.mark.parametrize(
    ("content", "changed", "message"),
    [
        (b"", {}, "no line of the 1 input file.s. contains a token"),
        (b"One line.\n\xff\n", {}, r"text.txt:2: not UTF-8"),
        (b"One document.\nIt is all.\n", {}, "all of the text is one document"),
        (b"A text.\n\nSo it is.\n", {}, "yields [0-9]+ instances for 9 output files"),
        (b"A.\n\nB.\n", {"random_next_sentences": False}, "no document has two sent"),
    ],
)
def test_text_without_records_is_refused(folder, content, changed, message):
    (folder / "text.txt").write_bytes(content)
    files = tuple(f"{folder}/out-{number}" for number in range(9))
    settings = make(folder, output_files=files, dupe_factor=1, **changed)
    with pytest.raises(UserError, match=message) as raised:
        generate(settings)
    assert "\n" not in str(raised.value) and "while running" not in str(raised.value)
    assert not made_in(folder)


@pytest.mark.parametrize("change", ["appended", "replaced", "after the last was read"])
def test_text_that_changes_while_it_is_read_is_refused(folder, monkeypatch, change):
    text = folder / "text.txt"
    calls = []

    def whole_documents(span, *rest, original=beam_steps.formats.whole_documents):
        whole = original(span, *rest)
        calls.extend([whole] if whole else [])
        if change == "appended" and len(calls) == 3:
            with open(text, "a") as file:
                file.write("One more line.\n")
        if change == "replaced" and len(calls) == 3:
            times = text.stat().st_mtime_ns
            (folder / "other").write_text(text.read_text()[:-3] + "xyz")
            os.utime(folder / "other", ns=(times, times))
            os.replace(folder / "other", text)
        return whole

    def checked(notes, job, original=beam_steps._Text.of):
        if change == "after the last was read":
            text.touch()
        return original(notes, job)

    monkeypatch.setattr(beam_steps.formats, "whole_documents", whole_documents)
    monkeypatch.setattr(beam_steps._Text, "of", checked)
    with pytest.raises(UserError, match=r"text.txt: (input files have|has) changed"):
        generate(make(folder))
    assert not made_in(folder)


def _dying(grouped, checked, job, original=beam_steps._write_file):
    if grouped[0] == 2:
        raise MemoryError("of this worker")
    return original(grouped, checked, job)


def test_a_pipeline_that_dies_leaves_no_description(folder, monkeypatch):
    settings = make(folder)
    generate(settings)
    expected = made_in(folder)
    with monkeypatch.context() as patch:
        patch.setattr(beam_steps, "_write_file", _dying)
        with pytest.raises(Exception, match="of this worker"):
            generate(make(folder, random_seed=2), overwrite=True)
    assert "out-0.description.json" not in made_in(folder)
    with pytest.raises(UserError, match="already exists; add --overwrite"):
        generate(settings)
    generate(settings, overwrite=True)
    assert made_in(folder) == expected


def test_records_of_a_plain_run_are_not_taken_for_those_of_a_pipeline(folder):
    settings = make(folder)
    direct.generate(settings)
    expected = made_in(folder)
    with pytest.raises(UserError, match="made with --runner here, not so there"):
        generate(settings)
    assert made_in(folder) == expected
    generate(settings, overwrite=True)
    with pytest.raises(UserError, match="made without --runner here, not so there"):
        direct.generate(settings)


def test_an_unknown_runner_is_refused():
    with pytest.raises(UserError, match="--runner=NoRunner.*Valid values.*FlinkRunner"):
        beam.Pipeline("NoRunner", "")
    with pytest.raises(UserError, match="no --direct_num_worker; check the spelling"):
        beam.Pipeline("DirectRunner", "--direct_num_worker=2")
    with pytest.raises(UserError, match="No closing quotation"):
        beam.Pipeline("DirectRunner", "--job_name='x")


def test_dataflow_is_not_given_files_that_its_workers_lack(folder):
    settings = make(folder)
    with pytest.raises(UserError, match="text.txt: Dataflow's workers cannot reach"):
        given = (
            "--project=my-project --region=us-central1 --temp_location=gs://my-bucket/x"
        )
        pipeline = beam.Pipeline("DataflowRunner", given)
        pipeline.generate(settings, list(settings.input_files))
    assert not made_in(folder)


class _Elsewhere(LocalFileSystem):
    """Files that only Beam reaches: held://tmp/x is /tmp/x."""

    @classmethod
    def scheme(cls):
        return "held"

    def _path_open(self, path, *arguments, **named):
        return super()._path_open(path.removeprefix("held:/"), *arguments, **named)

    def create(self, path, *arguments, **named):
        return super()._path_open(
            path.removeprefix("held:/"), "wb", *arguments, **named
        )

    def _list(self, prefix):
        for found in super()._list(prefix.removeprefix("held:/")):
            times = found.size_in_bytes, found.last_updated_in_seconds
            yield FileMetadata(f"held:/{found.path}", *times)

    def split(self, path):
        return os.path.split(path)

    def exists(self, path):
        return os.path.exists(path.removeprefix("held:/"))

    def metadata(self, path):
        return super().metadata(path.removeprefix("held:/"))

    def delete(self, paths):
        for path in paths:
            os.remove(path.removeprefix("held:/"))

    def rename(self, old, new):
        for paths in zip(old, new, strict=True):
            source, target = (path.removeprefix("held:/") for path in paths)
            assert not os.path.exists(target)  # HDFS would refuse
            os.rename(source, target)


def test_files_elsewhere_are_reached_with_beam(folder):
    generate(make(folder))
    expected = made_in(folder)
    for name in expected:
        (folder / name).unlink()
    pipeline = beam.Pipeline("DirectRunner", "")
    there = f"held:/{folder}"
    settings = make_settings(
        folder,
        input_files=(f"{there}/text.txt",),
        output_files=tuple(f"{there}/out-{number}" for number in range(3)),
        vocab_file=f"held:/{VOCAB_FILE}",
    )
    described, was_there = pipeline.generate(settings, [f"{there}/*.txt"])
    assert not was_there
    found = made_in(folder)
    description = "out-0.description.json"
    assert found.pop(description) != expected.pop(description)  # other names
    assert found == expected
    assert beam.Pipeline("DirectRunner", "").generate(
        settings, [f"{there}/text.txt"]
    ) == (described, True)
    with pytest.raises(UserError, match="already exists"):
        other = make_settings(folder, output_files=settings.output_files)
        beam.Pipeline("DirectRunner", "").generate(other, list(other.input_files))


def test_dumps_and_tables_elsewhere_are_read_as_well(folder):
    generate(make(folder))
    paths = [folder / f"out-{number}" for number in range(3)]
    expected = [path.read_bytes() for path in paths]
    for pattern, input_format in forms(folder):
        pattern = f"held:/{pattern}"
        pipeline = beam.Pipeline("DirectRunner", "")
        files = tuple(formats.expand([pattern], input_format))
        settings = make(folder, input_files=files, input_format=input_format)
        pipeline.generate(settings, [pattern], overwrite=True)
        assert [path.read_bytes() for path in paths] == expected, pattern
