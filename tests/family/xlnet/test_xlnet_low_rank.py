"""--lora_rank reaches an XLNet's attention, whose kernels have three axes."""

import numpy as np
import pytest

from training.storage import adapters
from errors import UserError
from modeling.objectives import tasks
from modeling.objectives.low_rank import LowRank
from tests import low_rank, relatives
from training.interchange import peft
from training.interchange.table import adapter_of

CONFIG = relatives.CONFIGS["xlnet"]
LAYER = "model/transformer/layer_{}/"


def test_a_run_adapts_queries_and_values(tmp_path):
    start = relatives.classifier_from_a_start(tmp_path, CONFIG)
    found = [f"{LAYER.format(n)}rel_attn/{name}" for n in (0, 1) for name in "qv"]
    low_rank.check_run(tmp_path, lambda **flags: start(tmp_path, **flags), found)


def test_every_kernel_changes_by_the_product_that_a_layer_adds():
    targets = [*"qkvro", "layer_1", "layer_2"]
    task = tasks.Classification(2)
    objective = LowRank(task, rank=3, alpha=6.0, targets=targets)
    objective.check(CONFIG)
    adapted = objective.network(CONFIG, seed=3)
    rng = np.random.default_rng(0)
    ids = {"input_ids": rng.integers(0, 9, (2, 5)).astype(np.int32)}
    plain = task.network(CONFIG, seed=3)
    np.testing.assert_array_equal(adapted(ids)["logits"], plain(ids)["logits"])
    own = [v for v in adapted.weights if adapters.are_in([v.path])]
    assert len(own) == 2 * 2 * len(targets)
    for variable in own:
        variable.assign_add(rng.normal(scale=0.1, size=variable.shape))
    merged = adapters.without({v.path: v for v in adapted.weights}, 6.0)
    for variable in plain.weights:
        variable.assign(merged[variable.path])
    expected = plain(ids)["logits"]
    np.testing.assert_allclose(adapted(ids)["logits"], expected, atol=1e-5)


def test_inputs_meet_what_is_drawn():
    config = relatives.CONFIGS["xlnet"]
    objective = LowRank(tasks.Classification(2), rank=2, alpha=2.0, targets=["q", "o"])
    weights = {v.path: v.numpy() for v in objective.network(config).weights}
    for name, drawn, zero in (("q", "a", "b"), ("o", "b", "a")):
        path = f"{LAYER.format(0)}rel_attn/{name}/lora_kernel_"
        assert not np.any(weights[path + zero])
        assert 0.5 * 0.25 < np.abs(weights[path + drawn]).max() <= 0.25  # 1 / sqrt(16)


def test_peft_has_no_such_adapters_of_attention(tmp_path):
    """In Hugging Face's class they are parameters, whose stacks of matrices it changes."""
    objective = LowRank(tasks.Classification(2), rank=2, alpha=2.0, targets=["q"])
    made = objective.network(CONFIG)
    tensors = {v.path: v.numpy() for v in made.trainable_variables}
    whole = adapters.without({v.path: v for v in made.weights}, 2.0)
    with pytest.raises(UserError, match="q/kernel: no module in Hugging Face"):
        peft.write(
            *(str(tmp_path), tensors, whole, adapter_of(CONFIG)),
            base="base",
            alpha=2.0,
            task={},
        )
    assert not list(tmp_path.iterdir())
