"""Pre-training without next sentences: what it learns, leaves alone, and is good for."""

import json
import shutil

import numpy as np
import pytest

import run_pretraining
import tests
from training.storage.source import Source
from errors import UserError
from modeling.objectives import masked_lm, sentence_pairs
from tests import jobs
from tests.conversion import convert
from tests.pretraining import TINY, flags, results

VOCAB = str(tests.GOLDEN / "checkpoint" / "vocab.txt")


def run(directory, **changes):
    own = {"objective": "masked_lm", "vocab_file": VOCAB, "num_train_steps": 2}
    given = flags(directory, **own | changes)
    run_pretraining.main(run_pretraining.Options(**given))


def initial(objective):
    return {v.path: v.numpy() for v in objective.network(TINY, seed=12345).weights}


def test_it_is_the_release_without_the_other_head():
    ours, release = masked_lm.MaskedLM(), sentence_pairs.MaskedLMNextSentence()
    rest = {"cls/seq_relationship/output_weights", "cls/seq_relationship/output_bias"}
    mine, theirs = initial(ours), initial(release)
    assert theirs.keys() - mine.keys() == rest and not mine.keys() - theirs.keys()
    for name, value in mine.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(0, 90, (4, 16)),
        "masked_lm_positions": rng.integers(0, 16, (4, 3)),
        "masked_lm_ids": rng.integers(0, 90, (4, 3)),
        "masked_lm_weights": np.ones((4, 3), np.float32),
        "next_sentence_labels": np.ones((4, 1), np.int64),
        "is_real_example": np.array([1, 1, 1, 0], np.float32),
    }
    totals = []
    for objective in (ours, release):
        outputs = objective.network(TINY, seed=1)(batch)
        total, weight = objective.losses(batch, outputs)["masked_lm_loss"]
        assert float(weight) == 9
        totals.append(float(total))
    assert totals[0] == totals[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run; only to be read."""
    folder = tmp_path_factory.mktemp("trained")
    with jobs.untraced():
        run(folder, do_eval=True, max_eval_steps=2)
    return folder


def test_a_run_from_records_to_every_use_of_it(trained, tmp_path):
    output = str(trained / "output")
    assert list(results(trained)) == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
    ]
    learned, before = (
        Source.open(f"{output}/model.ckpt-2").read(),
        initial(masked_lm.MaskedLM()),
    )
    for name, value in before.items():  # a pooler that nothing reaches is left alone
        assert np.array_equal(value, learned[name]) == ("/pooler/" in name), name
    assert not any("/pooler/" in name and "adam" in name for name in learned)

    folder = str(tmp_path / "theirs")
    convert(output, folder, layout="hugging_face")
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["architectures"] == ["BertForMaskedLM"]
    back = tmp_path / "back"
    back.mkdir()
    run(back, init_checkpoint=folder, do_train=False, do_eval=True, max_eval_steps=2)
    assert results(back) == results(trained) | {"global_step": "0"}


def test_a_run_keeps_to_its_objective(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "copied")
    both = "masked_lm_next_sentence"
    with pytest.raises(
        UserError, match=f"objective was 'masked_lm' and is now '{both}'"
    ):
        run(folder, objective=both)
    # If it was not noted, it was the default.
    path = folder / "output" / "run.json"
    noted = json.loads(path.read_text())
    del noted["objective"]
    path.write_text(json.dumps(noted))
    with pytest.raises(
        UserError, match=f"objective was '{both}' and is now 'masked_lm'"
    ):
        run(folder)
    # The other one goes on, to weights that this run has not.
    with pytest.raises(UserError, match="cls/seq_relationship/output_"):
        run(folder, objective=both)
