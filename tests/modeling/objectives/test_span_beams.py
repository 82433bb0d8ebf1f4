"""Heads for questions that try beams: the numbers, names and masks of their releases."""

import dataclasses

import numpy as np
import pytest

from errors import UserError
from modeling import layers
from modeling.architectures.bert import BertConfig
from modeling.bilstm import BiLstm
from modeling.objectives import tasks
from modeling.objectives.span_beams import SpanBeams
from modeling.objectives.span_head import DEFAULT
from run_squad import SPAN_HEADS
from tests import tiny

HEADS = {"default": DEFAULT, **SPAN_HEADS}
BEAMS = ("start_top_scores", "start_top", "end_top_scores", "end_top")
THEIR_BEAMS = (
    "start_top_log_probs",
    "start_top_index",
    "end_top_log_probs",
    "end_top_index",
)


def made(head, config, weights, variables, **beams):
    """The objective, and its network with the weights of a release."""
    without_dropout = dataclasses.replace(head, answer_dropout=0.0)
    objective = SpanBeams(without_dropout, **beams)
    model = objective.network(config)
    of_head = {v.path for v in model.weights if v.path not in weights}
    assert of_head == variables.keys()
    for variable in model.weights:
        variable.assign((weights | variables)[variable.path])
    return objective, model


def variables_in(heads, prefix):
    return {k[len(prefix) :]: v for k, v in heads.items() if k.startswith(prefix)}


def loss_of(objective, batch, outputs):
    total, weight = objective.losses(batch, outputs)["loss"]
    return float(total) / float(weight)


def trained(model, batch):
    """Its outputs in training, where no rate is above 0."""
    return model(batch, dropouts=layers.Dropouts(np.array([1, 2])))


@pytest.mark.parametrize("name", HEADS)
def test_a_row_may_have_fewer_tokens_than_beams(name):
    head = HEADS[name]
    model = SpanBeams(head).network(tiny.config())
    ids = np.array([[2, 5, 3, 6, 3, 0]])
    row = {"input_ids": ids, "input_mask": [[1, 1, 1, 1, 1, 0]]}
    row["segment_ids"] = [[0, 0, 0, 1, 1, 0]]
    outputs = model({k: np.array(v) for k, v in row.items()})
    number = 3 if head.final_sep else 2  # [CLS], the word, and [SEP]
    scores = outputs["start_top_scores"].numpy()
    assert (scores > -1e29).sum() == number
    assert np.isfinite(outputs["end_top_scores"]).all()
    assert outputs["start_top"].shape == (1, head.num_starts)
    assert outputs["end_top"].shape[2] == head.num_ends


def check_window_without_answer(head, expected):
    batch = {k: np.array([0]) for k in ("start_positions", "end_positions")}
    batch |= {"is_impossible": np.array([0]), "input_ids": np.zeros((1, 2), int)}
    logits = np.array([[50.0, 0.0]], np.float32)
    outputs = {"start_logits": logits, "end_logits": logits}
    outputs["no_answer_logit"] = np.array([10.0], np.float32)
    loss = loss_of(SpanBeams(head), batch, outputs)
    assert loss == pytest.approx(expected, abs=1e-3)


def test_a_window_without_the_answer_has_none():
    check_window_without_answer(DEFAULT, 0.0)


class WithoutSegments(BertConfig):
    architecture = "plain"
    has_segments = False


def test_what_such_a_head_cannot_read_is_refused():
    objective = SpanBeams(DEFAULT)
    objective.check(tiny.config())
    with pytest.raises(UserError, match="plain does not tell question and text"):
        objective.check(WithoutSegments(9))
    objective.lstm = BiLstm(1)
    with pytest.raises(UserError, match="remove --lstm_layers"):
        objective.check(tiny.config())


def first_weights(head, name):
    config = tiny.config(hidden_size=64)
    model = SpanBeams(head).network(config, seed=3)
    return {v.path: v.numpy() for v in model.weights}[name]


def test_first_weights_are_cut_off_normal():
    kernel = first_weights(DEFAULT, "end_logits/dense_0/kernel")
    assert kernel.shape == (128, 64)
    assert 0.015 < kernel.std() < 0.02  # truncated at two deviations


def check_dropout(config):
    """A head has it even if the encoder has none."""
    assert config.hidden_dropout_prob == 0.0
    model = tasks.Classification(3).network(config)
    dropouts = layers.Dropouts(np.array([1, 2]))
    hidden = np.ones((200, 16), np.float32)
    dropped = model.logits(hidden, dropouts)[:, 0]
    whole = np.isclose(0.9 * dropped, model.logits(hidden)[:, 0], atol=1e-7)
    assert 0.1 < np.mean(whole) < 0.3  # 0.9 ** 16 of the rows
