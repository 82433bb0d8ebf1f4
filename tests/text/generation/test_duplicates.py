"""--deduplicate: the records are those of a text in which nothing occurs twice."""

import errno
import json
import os

import numpy as np
import pytest

import create_pretraining_data
from errors import UserError
from tests import jobs
from tests.text.generation.settings import VOCAB_FILE, make_settings
from text.corpus import duplicates, text_format
from text.generation import stages
from text.generation.generate import generate

PLACES = "one two three four five six seven eight nine ten".split()
PARAGRAPHS = [
    " ".join(f"The {a} says that it is of {b}." for b in PLACES[:n])
    for n, a in enumerate(PLACES, start=1)
]


def random_documents(seed=0, number=60):
    """Lists of paragraphs: some documents occur again, some paragraphs within others."""
    rng, found = np.random.default_rng(seed), []
    for each in range(number):
        if each and rng.random() < 0.3:
            found.append(list(found[rng.integers(each)]))
            continue
        own = [
            f"The document {each} says so. It is {n}." for n in range(rng.integers(4))
        ]
        found.append([*own, *rng.choice(PARAGRAPHS, rng.integers(1, 4)).tolist()])
        rng.shuffle(found[-1])
    return found


def once(documents, with_paragraphs=True):
    """The same without what occurred before, and how many documents and paragraphs did."""
    seen_documents, seen, found, counts = set(), set(), [], [0, 0]
    for document in documents:
        if tuple(document) in seen_documents:
            counts[0] += 1
            continue
        seen_documents.add(tuple(document))
        kept = []
        for paragraph in document:
            if with_paragraphs and paragraph in seen:
                counts[1] += 1
            else:
                kept.append(paragraph)
            seen.add(paragraph)
        found.append(kept)
    return list(filter(None, found)), counts


def text_of(documents, input_format):
    if input_format == "jsonl":
        return "\n".join(json.dumps({"text": "\n".join(each)}) for each in documents)
    return "\n\n".join("\n".join(each) for each in documents)


def made(folder, name, text, **given):
    path = folder / f"{name}.txt"
    if text is not None:  # otherwise, what was begun with this name goes on
        path.write_text(text)
    workers = given.pop("workers", 1)
    settings = make_settings(
        folder,
        input_files=(str(path),),
        output_files=(str(folder / f"{name}.tfrecord"),),
        **given,
    )
    description, _ = generate(settings, num_workers=workers)
    return (folder / f"{name}.tfrecord").read_bytes(), description.counts


PARAGRAPHS_OF_WORDS = {
    "input_format": "paragraphs",
    "do_whole_word_mask": True,
    "word_boundaries": "spaces",
}


@pytest.mark.parametrize(
    ("given", "piece_bytes"),
    [
        ({"input_format": "paragraphs"}, 1),
        ({"input_format": "paragraphs"}, 300),
        ({"input_format": "jsonl", "workers": 3}, 300),
        ({"input_format": "sentences"}, 300),
        (PARAGRAPHS_OF_WORDS, 5_000),
        (PARAGRAPHS_OF_WORDS, 1 << 23),
    ],
)
def test_records_are_those_of_a_text_without_duplicates(
    folder, monkeypatch, given, piece_bytes
):
    documents = random_documents()
    expected, counts = once(documents, given["input_format"] != "sentences")
    assert counts[0] > 5
    text = text_of(documents, given["input_format"])
    plain = made(folder, "once", text_of(expected, given["input_format"]), **given)
    monkeypatch.setattr(text_format, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(duplicates, "_FLUSHED_BYTES", 100)
    records, found = made(folder, "all", text, deduplicate=True, **given)
    assert records == plain[0]
    assert [found.pop(f"duplicate_{x}") for x in ("documents", "paragraphs")] == counts
    for name in ("empty_sentences", "decomposed_sentences"):  # of all of the text
        found.pop(name), plain[1].pop(name)
    assert found == plain[1]


def test_a_document_may_have_a_piece_without_tokens(folder, monkeypatch):
    monkeypatch.setattr(text_format, "PIECE_BYTES", 1)  # one line
    text = "It is so.\n\x00\n\n" * 2 + "The one.\n"
    _, counts = made(folder, "text", text, input_format="paragraphs", deduplicate=True)
    assert (counts["duplicate_documents"], counts["documents"]) == (1, 2)


def test_paragraphs_of_files_may_be_wrapped(folder):
    names = [f"{folder}/{n}.part" for n in range(3)]
    for name, text in zip(
        names,
        [
            "It is so.\nAnd is.\n\nThe one.",
            "The two.\n\nIt is so. And\nis.",
            "The one.",
        ],
        strict=True,
    ):
        with open(name, "w") as file:
            file.write(text)
    settings = make_settings(
        folder, input_files=tuple(names), input_format="files", deduplicate=True
    )
    counts = generate(settings)[0].counts
    assert (counts["duplicate_documents"], counts["duplicate_paragraphs"]) == (0, 2)
    assert (counts["documents"], counts["sentences"]) == (2, 4)


@pytest.mark.parametrize("place", ["join", "remove_pieces", "_count_lengths"])
def test_an_interrupted_run_ends_with_the_same_records(folder, monkeypatch, place):
    monkeypatch.setattr(text_format, "PIECE_BYTES", 300)
    text = text_of(random_documents(), "paragraphs")
    given = {"input_format": "paragraphs", "deduplicate": True}
    expected = made(folder, "whole", text, **given)
    module = stages if place == "_count_lengths" else stages.store
    original, calls = getattr(module, place), []

    def dies(*arguments):
        if place == "_count_lengths" and not arguments[1].endswith("corpus.tokens"):
            return original(*arguments)
        if place == "remove_pieces":
            original(arguments[0][:3])
        calls.append(1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, place, dies)
        with pytest.raises(KeyboardInterrupt):
            made(folder, "killed", text, **given)
    assert calls
    assert made(folder, "killed", None, **given) == expected
    assert not [x for x in folder.iterdir() if x.name.endswith(".work")]


def test_a_full_disk_is_one_line_and_the_run_goes_on(folder, monkeypatch):
    text = text_of(random_documents(), "paragraphs")
    given = {"input_format": "paragraphs", "deduplicate": True}
    expected = made(folder, "whole", text, **given)

    def full(*unused):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(duplicates._Hashes, "_flush", full)
        with pytest.raises(OSError, match="the disk is full; free some space and run"):
            made(folder, "full", text, **given)
    assert not (folder / "full.tfrecord").exists()
    assert made(folder, "full", None, **given) == expected


def test_the_report_says_what_was_left_out(folder, capsys):
    (folder / "text.txt").write_text(text_of(random_documents(), "paragraphs"))
    flags = {
        "input_file": [str(folder / "text.txt")],
        "input_format": "paragraphs",
        "output_file": [str(folder / "out")],
        "vocab_file": VOCAB_FILE,
        "deduplicate": True,
    }
    jobs.run(create_pretraining_data, flags)
    _, (documents, paragraphs) = once(random_documents())
    line = f"Left out {documents} documents and {paragraphs} paragraphs of others that"
    assert line in capsys.readouterr().out
    with pytest.raises(UserError, match="--deduplicate is not for --runner"):
        jobs.run(create_pretraining_data, flags | {"runner": "DirectRunner"})
