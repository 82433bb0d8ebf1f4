"""--lora_rank reaches the projections and the gates of an ELMo's LSTMs."""

import numpy as np

from training.storage import adapters
from modeling.objectives import tasks
from modeling.objectives.low_rank import LowRank
from tests import low_rank, relatives

CONFIG = relatives.CONFIGS["elmo"]
DIRECTIONS = ("forward", "backward")


def test_a_run_adapts_projections(tmp_path):
    start = relatives.classifier_from_a_start(tmp_path, CONFIG)
    found = [f"elmo/layer_{n}/{d}_projection" for n in (0, 1) for d in DIRECTIONS]
    low_rank.check_run(tmp_path, lambda **flags: start(tmp_path, **flags), found)


def test_every_kernel_changes_by_the_product_of_its_adapters():
    targets = [f"{d}_{kind}" for d in DIRECTIONS for kind in ("kernel", "projection")]
    task = tasks.Classification(2)
    objective = LowRank(task, rank=3, alpha=6.0, targets=targets)
    objective.check(CONFIG)
    adapted, plain = objective.network(CONFIG), task.network(CONFIG)
    rng = np.random.default_rng(0)
    own = [v for v in adapted.weights if adapters.are_in([v.path])]
    assert len(own) == 2 * 2 * len(targets)
    for variable in own:
        variable.assign_add(rng.normal(scale=0.1, size=variable.shape))
    merged = adapters.without({v.path: v for v in adapted.weights}, 6.0)
    for variable in plain.weights:
        variable.assign(merged[variable.path])
    ids = {"input_ids": rng.integers(0, 9, (2, 5)).astype(np.int32)}
    expected = plain(ids)["logits"]
    np.testing.assert_allclose(adapted(ids)["logits"], expected, atol=1e-5)
