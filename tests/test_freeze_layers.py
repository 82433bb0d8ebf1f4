"""--freeze_layers: the embeddings and the lowest layers keep their bits, at no cost."""

import dataclasses
import json
import re

import numpy as np
import pytest

from training.backend import tf
from training.run import distribution, loop
from training.storage.source import Source
from errors import UserError
from modeling.architectures.table import make_encoder
from modeling.architectures.word_vectors import WordEmbeddingsConfig
from modeling.objectives import tasks
from modeling.objectives.frozen_layers import FrozenLayers
from modeling.objectives.label_loss import WithLabelLoss
from tests import classifier, jobs, relatives

DEEP = dataclasses.replace(classifier.TINY, num_hidden_layers=2)
LOWER = re.compile("/embeddings/|/layer_0/")


@pytest.fixture
def folder(tmp_path):
    return tmp_path, relatives.classifier_from_a_start(tmp_path, DEEP, freeze_layers=1)


def gradients_of(number, **settings):
    """A trainer of two layers, and the graph of its gradients."""
    objective = tasks.Classification(2)
    if number is not None:
        objective = FrozenLayers(objective, number)
    trainer = loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(DEEP, seed=1),
        objective,
        loop.LoopSettings(4, 0, 1e-3, 4, **settings),
    )
    batch = {
        "input_ids": tf.ones((4, 8), tf.int32),
        "label_ids": tf.constant([0, 1, 0, 1]),
    }
    seeds = tf.zeros((1, 2), tf.int32)
    return trainer, (batch, {"loss": 4.0}, seeds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("recompute", [False, True])
def test_the_gradients_are_those_of_all_and_end_where_nothing_is_trained(recompute):
    (whole, inputs), (frozen, _) = (
        gradients_of(n, recompute=recompute) for n in (None, 1)
    )
    paths = [v.path for v in whole.model.trainable_variables]
    expected = dict(zip(paths, whole._gradients(*inputs)[0], strict=True))
    found, _, _ = frozen._gradients(*inputs)
    for variable, gradient in zip(frozen.model.trainable_variables, found, strict=True):
        np.testing.assert_array_equal(gradient, expected.pop(variable.path))
    assert expected and all(map(LOWER.search, expected))
    products = []
    for trainer in (whole, frozen):
        graph = trainer._gradients.get_concrete_function(*inputs).graph.as_graph_def()
        nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
        products.append(sum("MatMul" in node.op for node in nodes))
    assert products[1] < 0.75 * products[0]


def test_frozen_layers_keep_their_bits_and_have_no_slots(folder, tmp_path, capsys):
    folder, run = folder
    changes = {"gradient_accumulation_steps": 2, "dtype": "mixed_bfloat16"}
    changes |= {"recompute": True, "layerwise_lr_decay": 0.8}
    run(folder, do_train=True, do_eval=True, **changes)
    start = Source.open(str(folder / "model.ckpt-best")).read()
    after = jobs.weights(folder)
    for path, value in start.items():
        is_frozen = bool(LOWER.search(path))
        assert (f"{path}/adam_m" in after) != is_frozen, path
        assert np.any(after[path] != value) != is_frozen, path
    other = tmp_path / "other"
    other.mkdir()
    jobs.check_goes_on(run, folder, other, capsys, **changes)
    assert json.loads((folder / "output/run.json").read_text())["freeze_layers"] == 1
    with pytest.raises(UserError, match="freeze_layers was 1 and is now 2"):
        run(folder, do_train=True, **changes | {"freeze_layers": 2})
    # Its weights are used without the flag.
    before = jobs.results(folder)
    run(folder, do_eval=True, freeze_layers=None, dtype="mixed_bfloat16")
    assert jobs.results(folder) == before


@pytest.mark.parametrize("architecture", sorted(relatives.CONFIGS))
def test_every_architecture_can_be_frozen(architecture):
    config = relatives.CONFIGS[architecture]
    stages = make_encoder(config).stages
    number = len(stages) - 2
    objective = FrozenLayers(WithLabelLoss(tasks.Classification(2), gamma=1.0), number)
    objective.check(config)
    model = objective.network(config)
    frozen = {v.path for stage in stages[:-1] for v in stage}
    trained = {v.path for v in model.trainable_variables}
    assert trained and not trained & frozen
    assert objective.for_evaluation.network(config).trainable_variables


def test_freezing_zero_layers_freezes_the_embeddings():
    model = FrozenLayers(tasks.Classification(2), 0).network(DEEP)
    kept = [v.path for v in model.weights if not v.trainable]
    assert kept and all("/embeddings/" in path for path in kept)


def test_freezing_nothing_is_refused():
    task = tasks.Classification(2)
    with pytest.raises(UserError, match="or nothing would be frozen; use one of 1"):
        FrozenLayers(task, 0).check(WordEmbeddingsConfig(9, hidden_size=4))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"freeze_layers": 3}, "has 2 layers, and --freeze_layers is 3"),
        ({"freeze_layers": -1}, "freeze_layers=-1: must be at least 0"),
        ({"init_checkpoint": None}, "frozen layers need --init_checkpoint"),
        ({"features": "last"}, "has no effect with --features"),
    ],
)
def test_what_cannot_be_frozen_is_refused(folder, changes, message):
    folder, run = folder
    with pytest.raises(UserError, match=message):
        run(folder, do_train=True, **changes)
