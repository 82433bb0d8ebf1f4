"""The script as a user meets it: formats, workers, interruption, and what goes wrong."""

import gzip
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import create_pretraining_data
import tests
from create_pretraining_data import Options
from tests import jobs
from text.corpus import formats
from text.errors import UserError
from text.files import local
from text.records import encoding, framing
from text.tokenizers.vocabulary import Vocabulary

ROOT = tests.ROOT
VOCAB_FILE = ROOT / "tests" / "golden" / "checkpoint" / "vocab.txt"
CORPUS = ROOT / "tests" / "golden" / "pretraining" / "corpus.txt"
MANY_TASKS = ROOT / "tests" / "programs" / "generate_many_tasks.py"
TEXT = "The first one.\nThe second is here.\n\nAnother has two.\nThis is it.\n"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda file: None)


def make(**changed):
    """Runs the script in this process; returns all records as arrays."""
    given = {
        "input_file": ["text.txt"],
        "output_file": ["out.tfrecord"],
        "vocab_file": str(VOCAB_FILE),
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "num_workers": 1,
    }
    given |= changed
    options = Options(**given)
    create_pretraining_data.main(options)
    paths = create_pretraining_data._output_files(given["output_file"])
    schema = options.make().schema()
    examples = [example for path in paths for example in framing.read(path)]
    batch, faults = encoding.decode(examples, schema)
    assert not faults
    return batch


def start(*flags, program=ROOT / "create_pretraining_data.py", **options):
    """Starts the script in a process group of its own."""
    line = [sys.executable, str(program), f"--vocab_file={VOCAB_FILE}", *flags]
    return jobs.started(line, **options)


def write(name, content):
    pathlib.Path(name).write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


# === Formats ===


def test_all_formats_hold_the_same_text():
    texts = ["The first one. The second is here.", "Another has two. This is it."]
    write("a.txt", TEXT)
    write("b.txt", "\n\n".join(texts))
    for name, text in zip(("c1.txt", "c2.txt"), texts, strict=True):
        write(name, text.replace(" ", "\n"))
    write("d.jsonl", "".join(json.dumps({"body": text}) + "\n" for text in texts))
    with gzip.open("e.txt.gz", "wb") as file:
        file.write(TEXT.encode())
    expected = make(input_file=["a.txt"])
    for number, given in enumerate(
        (
            {"input_file": ["b.txt"], "input_format": "paragraphs"},
            {"input_file": ["c?.txt"], "input_format": "files"},
            {"input_file": ["d.jsonl"], "input_format": "jsonl", "json_field": "body"},
            {"input_file": ["e.txt.gz"]},
        )
    ):
        found = make(output_file=[f"out-{number}"], **given)
        for name, values in expected.items():
            assert np.array_equal(found[name], values), (given, name)


def test_a_text_without_empty_lines_is_read_in_bounded_pieces(monkeypatch):
    lines = [f"the {'and ' * (i % 7)}of.\nThe" for i in range(300)]
    write("text.txt", "\n".join(lines))
    span = formats.Span("text.txt", 0, None, os.path.getsize("text.txt"))
    whole = list(formats.read(span, "files", "text", True))
    monkeypatch.setattr(formats, "_PARAGRAPH_CHARACTERS", 50)
    assert list(formats.read(span, "files", "text", True)) == whole
    assert len(whole) > 300


def test_a_vocabulary_of_another_language_is_noticed(capsys):
    write("text.txt", "\u4f60\u597d \u4e16\u754c\n\nthe of\n" * 20)
    make()
    assert (
        "of the tokens are [UNK]; check that the vocabulary" in capsys.readouterr().out
    )


def a_to_b(batch):
    """For each pair of neighbours, the first token of a and of b; without masks."""
    b_starts = batch["segment_ids"].argmax(axis=1)
    rows = np.arange(len(b_starts))
    tokens = Vocabulary.load(str(VOCAB_FILE)).tokens
    a, b = batch["input_ids"][:, 1], batch["input_ids"][rows, b_starts]
    is_next = batch["next_sentence_labels"][:, 0] == 0
    return {(tokens[i], tokens[j]) for i, j in zip(a[is_next], b[is_next], strict=True)}


@pytest.mark.parametrize("span_files", [False, True])
def test_a_file_s_end_ends_a_document_unless_told(span_files):
    write("1.txt", "of of\n\nthe the\n")
    write("2.txt", "and and\n")
    batch = make(
        input_file=["1.txt", "2.txt"],
        dupe_factor=30,
        mask_share=0.0,
        keep_share=1.0,
        random_share=0.0,
        documents_span_files=span_files,
    )
    assert a_to_b(batch) == ({("the", "and")} if span_files else set())


def test_words_of_segmented_text_are_masked_as_a_whole():
    words = ["研究", "生命", "科学", "大学"]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    write("vocab.txt", "\n".join(specials + sorted(set("".join(words)))))
    rng = random.Random(0)
    write("text.txt", "\n\n".join(" ".join(rng.choices(words, k=9)) for _ in range(9)))
    # Two sides of 18 characters, 39 tokens: 10.92 of them are to be predicted.
    given = {
        "vocab_file": "vocab.txt",
        "max_seq_length": 64,
        "max_predictions_per_seq": 20,
        "masked_lm_prob": 0.28,
        "do_whole_word_mask": True,
    }
    by_spaces = make(word_boundaries="spaces", **given)
    assert (by_spaces["masked_lm_weights"].sum(axis=1) == 10).all()
    for positions in by_spaces["masked_lm_positions"][:, :10]:
        # a stands at 1 to 18 and b at 20 to 37: words start at odd and at even places.
        assert (positions[1::2] == positions[::2] + 1).all()
        assert (positions[::2] % 2 == (positions[::2] < 19)).all()
    # Without, each character is a word, as in the release.
    by_pieces = make(output_file=["other"], **given)
    assert (by_pieces["masked_lm_weights"].sum(axis=1) == 11).all()


def test_korean_is_taken_apart_with_one_warning(capsys):
    write("text.txt", "한국어 문장\n둘째 문장\n\n다른 문서\n끝\n" * 3)
    make()
    lines = capsys.readouterr().out.splitlines()
    (warning,) = (line for line in lines if "Hangul" in line)
    assert "--strip_accents=false" in warning
    make(output_file=["other"], strip_accents=False)
    assert "Hangul" not in capsys.readouterr().out


def test_without_random_nexts_one_document_is_enough():
    write("text.txt", "The first one.\nThe second.\nThe third.\nAnother.\n" * 9)
    batch = make(random_next_sentences=False)
    assert len(batch["input_ids"]) and not batch["next_sentence_labels"].any()


def test_what_is_lost_is_said(capsys):
    write("text.txt", TEXT + "word " * 100 + "\n\x00\n")
    make(max_predictions_per_seq=2)
    said = capsys.readouterr().out
    assert (
        "warning: --masked_lm_prob=0.15 asks for 5 predictions in 32 tokens, but "
        "--max_predictions_per_seq=2 loses 60% of them; 5 would lose none"
    ) in said
    assert "1 sentences are longer than a whole record" in said
    assert "Skipped 1 lines without tokens" in said
    assert "warning: --max_predictions_per_seq left out" in said
    make(output_file=["other"], max_predictions_per_seq=5)
    assert "left out" not in capsys.readouterr().out


def test_a_number_stands_for_output_files():
    write("text.txt", TEXT)
    make(output_file=["a@2", "sub/b"])
    assert sorted(str(p) for p in pathlib.Path().glob("**/*") if p.is_file()) == [
        "a-00000-of-00002",
        "a-00000-of-00002.description.json",
        "a-00001-of-00002",
        "sub/b",
        "text.txt",
    ]


def test_ten_megabytes_in_a_line_and_nuls():
    write("text.txt", b"x" * 10_000_000 + b"\n\n" + b"a\x00nd the\n" * 3)
    batch = make()
    ids = Vocabulary.load(str(VOCAB_FILE)).ids
    assert {ids["[UNK]"], ids["and"]} <= set(batch["masked_lm_ids"].ravel().tolist())


def test_a_lone_surrogate_is_an_unknown_character():
    write("text.jsonl", '{"text": "The \\ud800 one. It is."}\n{"text": "Two. It."}\n')
    batch = make(input_file=["text.jsonl"], input_format="jsonl", masked_lm_prob=0.9)
    assert Vocabulary.load(str(VOCAB_FILE)).unk_id in batch["masked_lm_ids"]


# === What is refused ===

LONE = "One document.\nOf two sentences.\n"
REFUSED = {
    "no file": ({"input_file": ["no*.txt"]}, r"no file matches 'no\*\.txt'"),
    "no name": ({"input_file": []}, "no input file"),
    "a folder": ({"input_file": ["."]}, r"\.: is a folder; name its files"),
    "not UTF-8": ({"text": b"good\nba\xff\n"}, r"text\.txt:2: not UTF-8 \(byte 0xff"),
    "empty": ({"text": ""}, "no line of the 1 input file.s. contains a token"),
    "blank": (
        {"text": "\n \n\x00\n"},
        "no line of the 1 input file.s. contains a token",
    ),
    "one document": ({"text": LONE}, "one document, .*--random_next_sentences=false"),
    "no pairs": (
        {"text": "One.\n\nTwo.\n", "random_next_sentences": False},
        "no document has two sentences",
    ),
    "JSON": (
        {"text": '{"text": "a"}\n{"text"', "input_format": "jsonl"},
        r"text\.txt:2: not JSON",
    ),
    "JSON, deep": (
        {"text": "[" * 99_999, "input_format": "jsonl"},
        r":1: unreadable JSON",
    ),
    "JSON, field": (
        {"text": '\n{"body": "a"}', "input_format": "jsonl"},
        r"text\.txt:2: not a JSON object with a string 'text'; .*--json_field",
    ),
    "JSON, number": (
        {"text": '{"text": 7}', "input_format": "jsonl"},
        r"text\.txt:1: not a JSON object with a string 'text'",
    ),
    "many outputs": ({"output_file": ["o@999"]}, "instances for 999 output files"),
    "no outputs": ({"output_file": ["o@0"]}, "o@0: must name at least one file"),
    "empty output": ({"output_file": ["o", ""]}, "a name is empty"),
    "output twice": ({"output_file": ["o", "./o"]}, "named twice"),
    "output is input": (
        {"output_file": ["./text.txt"], "overwrite": True},
        "text.txt: is also an input",
    ),
    "description is input": (
        {"input_file": ["text.txt"], "output_file": ["o", "o.description.json"]},
        "o.description.json: the description of the records is written here",
    ),
    "output is the work folder": (
        {"output_file": ["o", "./o.work"]},
        "o.work: o.work is the folder for unfinished work",
    ),
    "output in the work folder": (
        {"output_file": ["o", "o.work/p"]},
        "o.work/p: o.work is the folder for unfinished work",
    ),
    "output is vocabulary": (
        {"output_file": [str(VOCAB_FILE)], "overwrite": True},
        "is also an input",
    ),
    "output folder is a file": (
        {"output_file": ["text.txt/o"]},
        "text.txt: is not a folder, so text.txt/o cannot be written",
    ),
    "output is a folder": ({"output_file": ["."]}, r"\.: is a folder; name a file"),
    "short": ({"max_seq_length": 7}, "--max_seq_length=7: must be from 8 to"),
    "long": ({"max_seq_length": 1 << 16}, "--max_seq_length=65536: must be from 8"),
    "many predictions": ({"max_predictions_per_seq": 10**9}, "must be from 1 to 32768"),
    "many passes": (
        {"dupe_factor": 10**9},
        "--dupe_factor=1000000000: must be from",
    ),
    "no predictions": ({"max_predictions_per_seq": 0}, "must be from 1"),
    "no passes": ({"dupe_factor": 0}, "--dupe_factor=0: must be from 1"),
    "probability": ({"masked_lm_prob": 1.5}, "--masked_lm_prob=1.5: .* 0 to 1"),
    "no probability": ({"masked_lm_prob": 0.0}, "nothing to predict"),
    "shares": ({"mask_share": 0.9}, "add up to 1.1; they must add up to 1"),
    "spaces alone": ({"word_boundaries": "spaces"}, "needs --do_whole_word_mask"),
    "n-grams": ({"ngram": 0}, "--ngram=0: must be from 1 to 32"),
    "long n-grams": ({"ngram": 33}, "--ngram=33: must be from 1 to 32"),
    "n-grams of 1": ({"favor_shorter_ngram": False}, "needs --ngram=2 or more"),
    "lone sentences": (
        {"lone_sentences": "random"},
        "--lone_sentences=random needs --instances=sentence_order",
    ),
    "vocabulary": ({"vocab_file": "text.txt"}, r"text\.txt: no line is \[PAD\]"),
}


@pytest.mark.parametrize("given, message", REFUSED.values(), ids=REFUSED)
def test_refused_with_one_line(given, message):
    given = dict(given)
    write("text.txt", given.pop("text", TEXT))
    with pytest.raises(UserError, match=message) as error:
        make(**given)
    assert "\n" not in str(error.value)
    assert os.listdir() == ["text.txt"]


def test_a_description_or_a_link_is_not_written_over_an_input():
    write("o.description.json", TEXT)
    os.symlink("o.description.json", "link")
    for output in ("o", "link"):
        with pytest.raises(UserError, match=f"{output}.*: is also an input"):
            make(
                input_file=["o.description.json"], output_file=[output], overwrite=True
            )
    assert pathlib.Path("o.description.json").read_text() == TEXT
    assert sorted(os.listdir()) == ["link", "o.description.json"]


def test_a_bad_line_in_a_later_piece_is_counted_from_the_file_s_start(monkeypatch):
    monkeypatch.setattr(formats, "_PIECE_BYTES", 50)
    write("text.txt", (TEXT * 20).encode() + b"caf\xe9\n")
    with pytest.raises(UserError, match=r"text\.txt:101: not UTF-8"):
        make()
    write("text.jsonl", '{"text": "One. Two."}\n\n' * 20 + "{")
    with pytest.raises(UserError, match=r"text\.jsonl:41: not JSON"):
        make(input_file=["text.jsonl"], input_format="jsonl")


def test_a_damaged_gz_is_named():
    packed = gzip.compress(CORPUS.read_bytes())
    write("cut.gz", packed[: len(packed) // 2])
    with pytest.raises(UserError, match=r"cut\.gz:\d+: the compressed data is damaged"):
        make(input_file=["cut.gz"])
    write("plain.gz", "no such thing")
    with pytest.raises(UserError, match=r"plain\.gz:1: the compressed data is damaged"):
        make(input_file=["plain.gz"])
    assert sorted(os.listdir()) == ["cut.gz", "plain.gz"]


def test_a_case_that_contradicts_the_vocabulary_s_name_is_refused():
    folder = pathlib.Path("cased_L-12_H-768_A-12")
    folder.mkdir()
    write(folder / "vocab.txt", VOCAB_FILE.read_bytes())
    write("text.txt", TEXT)
    with pytest.raises(UserError, match="--do_lower_case=true does not match"):
        make(vocab_file=str(folder / "vocab.txt"))


# === As a process ===


@pytest.mark.parametrize(
    "flags, status, message",
    [
        (["--no_such=1"], 2, "Unknown command line flag 'no_such'"),
        ([], 2, "--input_file, --output_file required"),
        (["--dupe_factor=x"], 2, "--dupe_factor=x: must be a whole number"),
        (["--input_file=no", "--output_file=o"], 1, "error: no file matches 'no'"),
        (
            ["--input_file=bad.txt", "--output_file=o", "--num_workers=2"],
            1,
            "error: bad.txt:1: not UTF-8",
        ),
        (
            [f"--input_file={CORPUS}", "--output_file=/proc/no/o"],
            1,
            "error: /proc/no: No such file or directory",
        ),
    ],
    ids=str,
)
def test_a_mistake_ends_in_one_line(flags, status, message):
    write("bad.txt", b"\xff\n")
    process = start(*flags)
    said, complained = process.communicate(timeout=60)
    assert process.returncode == status and said == ""
    assert complained.startswith(f"create_pretraining_data.py: {message}")
    assert complained.count("\n") == 1
    assert os.listdir() == ["bad.txt"]


# Beside the text that the release makes its records of, packed text, which one process
# unpacks for the others.
PACKED = "../packed.gz"
FLAGS = (
    f"--input_file={CORPUS},{PACKED}",
    "--output_file=out@2",
    "--max_seq_length=64",
    "--dupe_factor=2",
)


def outputs():
    """Names and contents of what stands under a final name."""
    return {
        path.name: path.read_bytes()
        for path in pathlib.Path().iterdir()
        if path.is_file() and not local.is_own(path.name)
    }


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The text, packed; beside the folders of the tests."""
    path = tmp_path_factory.getbasetemp() / "packed.gz"
    path.write_bytes(gzip.compress(CORPUS.read_bytes(), mtime=0))
    os.utime(path, (1, 1))


@pytest.fixture(scope="module")
def undisturbed(packed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    process = start(*FLAGS, "--num_workers=1", program=MANY_TASKS, cwd=folder)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_workers(undisturbed):
    """Here with three, and with two where the next but one is not killed."""
    process = start(*FLAGS, "--num_workers=3", program=MANY_TASKS)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert outputs() == undisturbed
    assert sorted(os.listdir()) == sorted(undisturbed)


WORK = pathlib.Path("out-00000-of-00002.work")


def is_killed_when(condition, undisturbed):
    """Starts the command and kills it if that becomes true; returns whether it did.

    All the while, what stands under a final name must be whole.
    """

    def check_what_stands():
        for name, content in outputs().items():
            assert content == undisturbed[name], f"{name} is half written"

    process = start(*FLAGS, "--num_workers=2", program=MANY_TASKS)
    while process.poll() is None and not condition():
        check_what_stands()
        time.sleep(0.005)
    process.kill()  # the parent alone: the others end by themselves
    _, complained = process.communicate(timeout=30)
    check_what_stands()
    assert process.returncode in (0, -signal.SIGKILL), complained
    return process.returncode != 0


def is_killed_after(seconds, undisturbed):
    end = time.monotonic() + seconds
    return is_killed_when(lambda: time.monotonic() > end, undisturbed)


@pytest.mark.slow
def test_killed_while_unpacking_it_ends_with_the_same_bytes(undisturbed):
    plain = -(-CORPUS.stat().st_size // 2_000)

    def tokenized():
        return len(list(WORK.glob("piece-*.json")))

    # Amid the plain text, the packed text, and near their end.
    for pieces in (plain // 2, plain + plain // 5, 2 * plain - plain // 5):
        assert is_killed_when(lambda pieces=pieces: tokenized() >= pieces, undisturbed)
        assert tokenized() >= pieces and not (WORK / "corpus.json").exists()
    assert not is_killed_when(lambda: False, undisturbed)
    assert outputs() == undisturbed
    assert sorted(os.listdir()) == sorted(undisturbed)


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bytes(undisturbed):
    def check_and_clear():
        assert outputs() == undisturbed
        assert sorted(os.listdir()) == sorted(undisturbed)
        for name in undisturbed:
            os.remove(name)

    began = time.monotonic()
    assert not is_killed_after(60, undisturbed)
    length = time.monotonic() - began
    check_and_clear()
    rng = random.Random(7)
    kills = kills_at_work = ends = 0
    while kills < 4:
        if is_killed_after(rng.uniform(0.2, 1) * length, undisturbed):
            kills += 1
            kills_at_work += (WORK / "origin.json").exists()
        else:  # nearly all was done before; the next kills hit a new beginning
            check_and_clear()
            ends += 1
            assert ends < 6, "it mostly ends before it is killed"
    assert kills_at_work >= 2
    assert not is_killed_after(60, undisturbed)
    check_and_clear()


def group_members(group):
    """Processes of a group that are still there."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = pathlib.Path(f"/proc/{name}/stat").read_text().rpartition(")")[2]
        except OSError:
            continue
        state, _, its_group = fields.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(int(name))
    return found


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def start_long():
    """Starts a run that lasts and waits until its workers are at work."""
    process = start(*FLAGS, "--dupe_factor=400", "--num_workers=2", program=MANY_TASKS)
    wait_for(lambda: list(WORK.glob("plan-*.json")))
    return process, WORK


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(packed):
    process, _ = start_long()
    assert len(group_members(process.pid)) > 2
    process.kill()
    process.wait()
    wait_for(lambda: not group_members(process.pid), seconds=10)
    process.communicate()


@pytest.mark.slow
def test_ctrl_c_stops_in_one_line_and_can_go_on(packed):
    process, folder = start_long()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 130
    assert [s for s in complained.splitlines() if not s.startswith(("1/3", "2/3"))] == [
        "generate_many_tasks.py: interrupted; run the same command again to continue"
    ]
    wait_for(lambda: not group_members(process.pid), seconds=10)
    assert os.listdir() == [str(folder)]
    assert (folder / "origin.json").exists()


@pytest.mark.slow
def test_a_killed_worker_is_reported(packed):
    process, _ = start_long()
    workers = [pid for pid in group_members(process.pid) if pid != process.pid]
    command = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_text() for pid in workers}
    worker = next(pid for pid, line in command.items() if "spawn_main" in line)
    os.kill(worker, signal.SIGKILL)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "error: a worker process was killed from outside" in complained
    assert "Traceback" not in complained


@pytest.mark.slow
def test_one_process_at_a_time_writes_an_output(packed):
    first, folder = start_long()
    second = (f"--input_file={CORPUS}", "--output_file=new,out-00001-of-00002")
    for flags in (second, (*second, "--overwrite"), (*FLAGS, "--overwrite")):
        process = start(*flags)
        _, complained = process.communicate(timeout=60)
        assert process.returncode == 1, complained
        assert f"in use by process {first.pid} on " in complained
        assert complained.count("\n") == 1
    assert first.poll() is None
    assert [name for name in os.listdir() if not name.startswith(".")] == [str(folder)]
    first.kill()
    first.communicate()
    # What was killed holds nothing any more; its folder and the free name are no matter.
    process = start(*second)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained
    assert set(outputs()) == {"new", "new.description.json", "out-00001-of-00002"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "hard, message",
    [
        (600, ""),
        (
            300,
            "files open here, which allows 43 outputs; use fewer, or raise the limit",
        ),
    ],
)
def test_as_many_outputs_as_files_may_be_open(hard, message):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))

    flags = (f"--input_file={CORPUS}", "--output_file=o@100", "--num_workers=1")
    process = subprocess.run(
        [sys.executable, ROOT / "create_pretraining_data.py", *flags]
        + [f"--vocab_file={VOCAB_FILE}"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    assert process.returncode == (1 if message else 0), process.stderr
    assert message in process.stderr
    assert len(os.listdir()) == (0 if message else 101)


def test_outputs_whose_long_names_begin_alike():
    write("text.txt", TEXT)
    make(output_file=[f"{'n' * 120}@3"], dupe_factor=5)
    assert len(os.listdir()) == 5


FULL = """
import errno, os, sys
import create_pretraining_data, options
from text.corpus import store
def fail(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
store.join = fail
options.run(create_pretraining_data.main, create_pretraining_data.Options)
"""


def test_a_full_disk_keeps_what_is_finished():
    write("full.py", FULL)
    flags = (f"--input_file={CORPUS}", "--output_file=o/out", "--num_workers=1")
    process = start(*flags, program="full.py")
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 1
    assert complained.splitlines()[-1].startswith(
        f"full.py: error: {os.getcwd()}/o: the disk is full; free some space"
    )
    assert "Traceback" not in complained
    assert pathlib.Path("o/out.work/piece-000000.tokens").exists()
    assert os.listdir("o") == ["out.work"]
