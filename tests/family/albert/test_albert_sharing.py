"""What follows from weights that layers share: memory, rates, frozen and kept layers."""

import pytest

from training.run import capacity
from errors import UserError
from family.albert.encoder import AlbertConfig
from files import memory
from modeling.objectives import tasks
from modeling.objectives.frozen_layers import FrozenLayers
from tests.conversion import GOLDEN, convert
from tests.modeling.test_layerwise_rates import SIZES, shares
from tests.training.pretraining.test_dry_run import flops


def test_weights_that_layers_share_have_the_rate_of_the_highest():
    config = AlbertConfig(
        **SIZES, embedding_size=2, num_hidden_layers=5, num_hidden_groups=2
    )
    found = shares(config)
    kernel = "bert/encoder/transformer/group_{}/inner_group_0/attention_1/self/key/bias"
    assert found[kernel.format(0)] == 4  # layers 0 to 2
    assert found[kernel.format(1)] == 2  # layers 3 and 4
    assert found["bert/encoder/embedding_hidden_mapping_in/bias"] == 7


def test_layers_that_share_weights_are_frozen_together():
    config = AlbertConfig(
        vocab_size=9,
        hidden_size=4,
        num_attention_heads=1,
        embedding_size=2,
        num_hidden_layers=5,
        num_hidden_groups=2,
    )
    task = tasks.Classification(2)
    for number in (0, 3, 5):
        FrozenLayers(task, number).check(config)
    with pytest.raises(UserError, match="would share .* use one of 0, 3, 5"):
        FrozenLayers(task, 2).check(config)


def test_operations_of_a_row():
    shared = AlbertConfig(
        vocab_size=30522,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
    )
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    attention = 12 * 2 * 128 * 768
    assert flops(shared, 128, 0) == 6 * 128 * (weights + attention + 128 * 768)


def test_many_layers_that_share_weights_fit_into_memory(monkeypatch):
    monkeypatch.setattr(memory, "total", lambda: 100 * 10**9)
    monkeypatch.setattr(capacity, "_has_accelerators", lambda: False)
    capacity.check_network(AlbertConfig(30000, num_hidden_layers=999), "c.json")


def test_a_student_cannot_keep_some_of_them(tmp_path):
    message = "layers of the architecture 'albert' have no weights of their own"
    with pytest.raises(UserError, match=message):
        convert(
            GOLDEN / "albert" / "hf" / "masked_lm", tmp_path / "new", keep_layers=[0]
        )
    assert not (tmp_path / "new").exists()
