"""Text to records: what decides their bytes."""

import contextlib
import gzip
import json
import os
import pathlib
import pickle

import numpy as np
import pytest

import tests
from errors import UserError
from tests.text.generation.settings import made_in, make_settings
from text.corpus import formats
from text.generation import stages, work
from text.generation.generate import generate
from text.instances import masking, pairs
from text.instances.table import INSTANCES
from text.records import descriptions, encoding, framing

GOLDEN = tests.GOLDEN


def read(settings):
    """All records, as arrays."""
    examples = [e for path in settings.output_files for e in framing.read(path)]
    batch, faults = encoding.decode(examples, settings.make_instances().schema())
    assert not faults
    return batch


def test_small_tasks_make_the_whole(folder, many_tasks):
    outputs = tuple(f"{folder}/out-{i}" for i in range(2))
    settings = make_settings(folder, output_files=outputs)
    description, was_there = generate(settings)
    assert not was_there
    counts = description.counts
    assert counts["documents"] == 12 and counts["sentences"] == 108
    batch = read(settings)
    assert len(batch["input_ids"]) == counts["instances"] == description.instances
    assert [o["instances"] for o in description.outputs] == [
        sum(1 for _ in framing.read(path)) for path in outputs
    ]
    assert batch["next_sentence_labels"].sum() == counts["random_next"]
    assert batch["masked_lm_weights"].sum() == counts["predictions"]
    assert batch["input_mask"].sum() == counts["instance_tokens"]
    # Every instance once: all are different, except by chance.
    rows = {row.tobytes() for row in batch["input_ids"]}
    assert len(rows) > 0.9 * counts["instances"]
    assert set(made_in(folder)) == {"out-0", "out-1", "out-0.description.json"}


def test_each_instance_stands_in_one_place(folder, many_tasks):
    # All plans of all passes and no other, in another order than planned.
    settings = make_settings(folder, mask_share=0.0, random_share=0.0)
    planned = []
    plan = pairs.plan

    def spy(*arguments, **named):
        made, counts = plan(*arguments, **named)
        planned.append(made)
        return made, counts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "plan", spy)
        generate(settings)
    lengths = [
        (int(pair["a_length"]), int(pair["b_length"]), int(pair["is_random"]))
        for pair in np.concatenate(planned)
    ]
    batch = read(settings)
    b = batch["segment_ids"].sum(axis=1) - 1
    a = batch["input_mask"].sum(axis=1) - b - 3
    found = list(zip(a, b, batch["next_sentence_labels"][:, 0], strict=True))
    assert sorted(found) == sorted(lengths) and found != lengths


def test_passes_blocks_and_batches_draw_by_themselves(folder, many_tasks, monkeypatch):
    document = "\n".join(["The one says that it is so and so it is."] * 30)
    (folder / "text.txt").write_text("\n\n".join([document] * 6))
    planned, masked = [], []
    plan, mask = pairs.plan, masking.mask

    def plan_noted(*arguments, **named):
        made, counts = plan(*arguments, **named)
        planned.append((made["a_start"] - made["a_start"][0]).tobytes())
        return made, counts

    def mask_noted(*arguments):
        batch, counts = mask(*arguments)
        masked.append(batch["masked_lm_positions"][:8].tobytes())
        return batch, counts

    monkeypatch.setattr(pairs, "plan", plan_noted)
    monkeypatch.setattr(masking, "mask", mask_noted)
    generate(make_settings(folder, short_seq_prob=0.0))
    assert len(planned) == 12 == len(set(planned))  # six blocks, two passes
    assert len(masked) > 12 and len(masked) == len(set(masked))


CHANGES = (
    {"random_seed": 2},
    {"dupe_factor": 3},
    {"masked_lm_prob": 0.05},
    {"short_seq_prob": 1.0},
    {"max_seq_length": 30},
    {"max_predictions_per_seq": 2},
    {"mask_share": 0.5},
    {"random_share": 0.2},
    {"do_whole_word_mask": True},
    {"do_whole_word_mask": True, "word_boundaries": "spaces"},
    {"do_lower_case": False},
    {"random_next_sentences": False},
    {"input_format": "files"},
    {"gzip_compress": True},
    {"ngram": 2},
    *({"instances": name} for name in INSTANCES if name == "sentence_order"),
)


@pytest.mark.parametrize("changed", CHANGES, ids=str)
def test_each_setting_changes_the_records(folder, changed):
    settings = make_settings(folder)
    with contextlib.suppress(UserError):  # as "files" it is one document
        generate(settings)
        before = pathlib.Path(settings.output_files[0]).read_bytes()
        settings = make_settings(folder, **changed)
        generate(settings, overwrite=True)
        assert pathlib.Path(settings.output_files[0]).read_bytes() != before


def test_other_names_and_times_give_the_same_records(folder):
    first = make_settings(folder)
    generate(first)
    os.utime(folder / "text.txt", (1, 1))
    second = make_settings(folder, output_files=(str(folder / "sub" / "b.tfrecord"),))
    generate(second)
    contents = [pathlib.Path(s.output_files[0]).read_bytes() for s in (first, second)]
    assert contents[0] == contents[1]


def test_packed_records_are_the_same_records(folder, many_tasks):
    plain, packed = make_settings(folder), make_settings(folder, gzip_compress=True)
    generate(plain)
    content = pathlib.Path(plain.output_files[0]).read_bytes()
    generate(packed, overwrite=True)
    packed_content = pathlib.Path(packed.output_files[0]).read_bytes()
    assert gzip.decompress(packed_content) == content
    generate(plain, overwrite=True)
    generate(packed, overwrite=True)
    assert pathlib.Path(packed.output_files[0]).read_bytes() == packed_content


def begins(content):
    """Where the records of a TFRecord file begin."""
    found, position = [], 0
    while position < len(content):
        found.append(position)
        position += 16 + int.from_bytes(content[position : position + 8], "little")
    return found


@pytest.mark.parametrize("segment_rows", [40, 1 << 16])
def test_the_description_says_where_records_begin(
    folder, many_tasks, monkeypatch, segment_rows
):
    monkeypatch.setattr(stages, "SEGMENT_ROWS", segment_rows)
    outputs = tuple(f"{folder}/out-{i}" for i in range(2))
    settings = make_settings(folder, output_files=outputs)
    description, _ = generate(settings)
    for path, output in zip(outputs, description.outputs, strict=True):
        expected = begins(pathlib.Path(path).read_bytes())
        assert len(expected) == output["instances"] > 60
        assert output["offsets"] == expected[::8]
    packed = make_settings(folder, output_files=outputs, gzip_compress=True)
    description, _ = generate(packed, overwrite=True)
    assert not any("offsets" in output for output in description.outputs)


def test_batches_and_segments_begin_where_offsets_are_noted():
    for rows in (stages.BATCH_ROWS, stages.SEGMENT_ROWS):
        assert rows % descriptions.OFFSET_EVERY == 0


def test_tasks_and_notes_do_not_grow_with_the_number_of_files(
    folder, many_tasks, monkeypatch
):
    monkeypatch.setattr(formats, "_PIECE_FILES", 4)
    do_all = work.Workers.do_all

    def sizes_with(number):
        names = [folder / f"a rather long name {i:09d}.txt" for i in range(number)]
        for path in names:
            path.write_text("The one.\nIs two.\n")
        largest = 0

        def spy(self, tasks, *arguments, **named):
            def noted():
                nonlocal largest
                for size, task in tasks:
                    if task[1] is not stages._join_segments:
                        largest = max(largest, len(pickle.dumps(task)))
                    yield size, task

            return do_all(self, noted(), *arguments, **named)

        monkeypatch.setattr(work.Workers, "do_all", spy)
        settings = make_settings(folder, input_files=tuple(map(str, names)))
        description, _ = generate(settings, overwrite=True)
        return largest, len(json.dumps(description.origin))

    few, many = sizes_with(8), sizes_with(80)
    for size_of_few, size_of_many in zip(few, many, strict=True):
        assert size_of_many < 1.05 * size_of_few  # numbers get longer


def test_a_large_vocabulary_takes_wide_ids(tmp_path):
    words = [f"w{i}" for i in range(70_000)]
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join(specials + words))
    (tmp_path / "text.txt").write_text(
        "\n\n".join(f"w{69_990 + i} w0 w{60_000 + i}" for i in range(9))
    )
    settings = make_settings(
        tmp_path,
        vocab_file=str(tmp_path / "vocab.txt"),
        max_seq_length=512,
        mask_share=0.0,
        random_share=0.0,
    )
    generate(settings)
    batch = read(settings)
    assert batch["input_ids"].shape[1] == 512
    # Two documents of one sentence each side: w69990 w0 w60000 -> + 5
    assert set(batch["input_ids"][:, 1]) == {69_995 + i for i in range(9)}
    assert set(batch["input_ids"][:, 3]) == {60_005 + i for i in range(9)}
