"""Adapters of an ELECTRA whose base has no pooler."""

import dataclasses

import pytest

from errors import UserError
from family.electra.encoder import ElectraConfig
from modeling.objectives import tasks
from modeling.objectives.low_rank import LowRank, frozen_paths
from tests import classifier, peft_adapters


def test_a_layer_that_the_base_lacks_is_trained_whole():
    """A product with a kernel that nothing stores could not be read again."""
    sizes = dataclasses.asdict(classifier.TINY)
    names = {field.name for field in dataclasses.fields(ElectraConfig)} & sizes.keys()
    config = ElectraConfig(**{n: sizes[n] for n in names}, pooler_act="gelu_erf")
    base = [v.path for v in tasks.Classification(2).network(config).encoder.weights]
    base = [name for name in base if "/pooler/" not in name]
    task = tasks.Classification(2)
    objective = LowRank(task, rank=2, alpha=4.0, targets=["dense"], base=base)
    model = objective.network(config)
    pooler = {v.path: v.trainable for v in model.weights if "/pooler/" in v.path}
    names = [f"electra/pooler/dense/{name}" for name in ("kernel", "bias")]
    assert pooler == dict.fromkeys(names, True)
    assert frozen_paths(model) == set(base)


def test_a_head_without_a_layer_that_theirs_has_is_refused(tmp_path):
    peft_adapters.write_base(tmp_path, "electra")
    peft_adapters.make(tmp_path, "electra", pooler_act=None)
    with pytest.raises(
        UserError, match="has a layer classifier.dense: this model has no"
    ):
        peft_adapters.convert(tmp_path / "output", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
