"""Every kind of records: killed, shared or written at once, the bytes are the same."""

import os

import pytest

import tests
from tests.killed import Killed
from tests.text.generation.settings import made_in, make_settings
from tests.text.generation.shards import thread_of
from text.generation import work
from text.generation.generate import generate
from text.instances.table import INSTANCES

CHANGES = {
    "contiguous": {
        "vocab_file": str(tests.GOLDEN / "sentencepiece" / "xlnet.model"),
        "masking": "dynamic",
        "rows_per_batch": 3,
    },
    "sentence_order": {"ngram": 3, "do_whole_word_mask": True},
    "sentence_order, unmasked": {"masking": "dynamic"},
}

KINDS = INSTANCES | CHANGES  # and those of relatives, if they are there
KINDS = [kind for kind in KINDS if kind.partition(",")[0] in INSTANCES]


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_are_those_of_one_run(folder, many_tasks, monkeypatch, kind):
    monkeypatch.setattr(work, "_POLL_SECONDS", 0.01)
    settings = make_settings(
        folder,
        output_files=tuple(f"{folder}/out-{i}" for i in range(2)),
        instances=kind.partition(",")[0],
        **CHANGES.get(kind, {}),
    )
    generate(settings)
    assert not os.path.exists(settings.work_folder)
    undisturbed = made_in(folder)

    def start_over():
        for name in undisturbed:
            (folder / name).unlink()

    replace, alive = os.replace, 0

    def replace_or_die(source, target):
        nonlocal alive
        alive -= 1
        if not alive:
            raise Killed
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_or_die)
        for survived in (7, 16, 25):
            start_over()
            alive = survived
            with pytest.raises(Killed):
                generate(settings)
            generate(settings)
            assert made_in(folder) == undisturbed
    start_over()
    second = thread_of(settings, 1)
    second.start()
    generate(settings, shard=(0, 2))
    second.join(60)
    assert made_in(folder) == undisturbed
