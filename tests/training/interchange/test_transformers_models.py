"""Models of all their classes compute the same here, and come back bit for bit.

    python -m tests.training.interchange.test_transformers_models 40 [SEED]

tries that many of random sizes, some with values that our networks lack.
"""

import collections
import contextlib
import io
import pathlib
import random
import re
import sys
import tempfile
from typing import NamedTuple

import numpy as np
import pytest

from training.backend import tf
from training.storage.source import Source, read_config
from errors import UserError
from modeling.objectives import tasks
from tests.conversion import convert
from tests.training.interchange.transformers_configs import ROWS, Case, case, cases
from tests.training.interchange.transformers_models import (
    batch,
    difference,
    learn_answers,
    load,
    make,
    ours,
    theirs,
)

pytestmark = pytest.mark.slow

CLOSE = 1e-5
CASES = [
    (architecture, their_class)
    for architecture, row in ROWS.items()
    for their_class in row.classes
    if their_class not in (*row.without_ours, *row.unread)
]
# Keys of a config that are not kept: they change no output (all outputs are compared), or
# only their training or their generation of text.
NOT_KEPT = {
    *("_name_or_path", "architectures", "dtype", "transformers_version"),
    *("id2label", "label2id"),  # of models without such a head
    *("pad_token_id", "mem_len", "chunk_size_feed_forward", "classifier_dropout_prob"),
    *("is_decoder", "tie_word_embeddings"),  # where their class does not read it
    *("summary_type", "summary_use_proj", "summary_activation"),
    "summary_proj_to_labels",
}
SAME_ACTIVATION = {
    "gelu_python": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
}


class Outcome(NamedTuple):
    """How far our outputs are from theirs, and theirs after conversion; or refusals."""

    read: float | str
    written: float | str


def check(case: Case, folder: pathlib.Path) -> Outcome:
    """Reads a model of theirs and converts it to the release's layout and back."""
    model = make(case, folder / "theirs")
    expected = theirs(model, case)
    try:
        read = difference(ours(case, folder / "theirs"), expected, case)
        assert read < CLOSE, (read, str(case))
    except UserError as error:
        read = str(error)
        _check_refusal(case, read)
    try:
        convert(folder / "theirs", folder / "released")
        convert(folder / "released", folder / "back", layout="hugging_face")
    except UserError as error:
        _check_refusal(case, str(error))
        return Outcome(read, str(error))
    return Outcome(read, _check_same(case, model, expected, folder / "back"))


def _check_refusal(case, message):
    assert "\n" not in message and len(message) < 600, (message, str(case))
    is_incomplete = case.their_class in (*case.row.without_ours, *case.row.unread)
    if is_incomplete and not case.odd:
        assert "contains " in message, (message, str(case))
    elif not is_incomplete:
        named = [re.escape(key) for key in case.odd]
        if "tie_word_embeddings" in case.odd:  # known by its tensor
            named.append("differs from the table")
        assert named and re.search("|".join(named), message), (message, str(case))


def _check_same(case, model, expected, folder) -> float:
    again, loading = load(case, folder)
    added = case.row.added.get(case.their_class, set())
    loading = {key: names - added for key, names in loading.items()}
    assert not any(loading.values()), (loading, str(case))
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys(), str(case)
    for name, value in before.items():
        assert bool((value == after[name]).all()), (name, str(case))
    before, after = (
        {k: _meaning(v) for k, v in m.config.to_dict().items() if k not in NOT_KEPT}
        for m in (model, again)
    )
    assert before == after, str(case)
    found = difference(theirs(again, case), expected, case)
    assert found < CLOSE, (found, str(case))  # some spell one GELU in several ways
    return found


def _meaning(value):
    return SAME_ACTIVATION.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize(("architecture", "their_class"), CASES)
def test_a_model_of_theirs_is_read_and_comes_back(architecture, their_class, tmp_path):
    drawn = random.Random(their_class)
    usual = case(architecture, their_class, 1, drawn, may_be_odd=False)
    outcome = check(usual, tmp_path)
    assert not any(isinstance(part, str) for part in outcome), outcome


@pytest.mark.parametrize(
    "architecture",
    [name for name, row in ROWS.items() if row.trains_padding is not None],
)
def test_questions_are_learned_as_theirs_are(architecture, tmp_path):
    """With padding in the softmax. They never train the vector of [PAD]; BERT does."""
    row = ROWS[architecture]
    name = row.classes[0].removesuffix("Model") + "ForQuestionAnswering"
    usual = case(architecture, name, 5, random.Random(5), may_be_odd=False)
    model = make(usual, tmp_path / "theirs")
    answers = {
        "start_positions": np.array([4, 1, 3, 2]),
        "end_positions": np.array([5, 2, 4, 3]),
    }
    objective = tasks.Span()
    network = objective.network(read_config(str(tmp_path / "theirs")))
    variables = {v.path: v for v in network.weights}
    Source.open(str(tmp_path / "theirs")).load(
        variables, network.encoder.required_variables
    )
    rows = batch(usual) | answers
    with tf.GradientTape() as tape:
        loss, weight = objective.losses(rows, network(rows))["loss"]
        loss /= weight
    expected_loss, expected = learn_answers(model, usual, answers, tmp_path / "after")
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    names = expected.keys() & {v.path for v in network.trainable_variables}
    gradients = tape.gradient(loss, {name: variables[name].value for name in names})
    for name, gradient in gradients.items():
        gradient = tf.convert_to_tensor(gradient).numpy()
        if name.endswith("/word_embeddings") and row.trains_padding:
            gradient[usual.values.get("pad_token_id", row.pad)] = 0
        np.testing.assert_allclose(
            gradient, expected[name], rtol=0, atol=1e-5, err_msg=name
        )


def test_a_model_in_several_files_is_read(tmp_path):
    their_class = "BertForPreTraining"
    usual = case("bert", their_class, 1, random.Random(1), may_be_odd=False)
    model = make(usual, tmp_path / "whole")
    model.save_pretrained(tmp_path / "split", max_shard_size="2KB")
    assert len(list((tmp_path / "split").glob("*.safetensors"))) > 2
    found = ours(usual, tmp_path / "split")
    assert difference(found, theirs(model, usual), usual) < CLOSE


def main(number: int, seed: int = 0) -> int:
    """Prints what became of that many; 1 if something differs."""
    counts, reasons = collections.Counter(), collections.Counter()
    worst, failed = 0.0, 0
    for one in cases(number, seed):
        with tempfile.TemporaryDirectory() as folder:
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    outcome = check(one, pathlib.Path(folder))
            except Exception as error:
                failed += 1
                print(f"FAILED: {one}: {type(error).__name__}: {error}")
                continue
        for way, part in zip(outcome._fields, outcome, strict=True):
            is_refused = isinstance(part, str)
            counts[f"{way}: {'refused' if is_refused else 'equal'}"] += 1
            if not is_refused:
                worst = max(worst, part)
        if isinstance(outcome.written, str):
            reasons[f"{one.their_class}, {', '.join(one.odd) or 'its head'}"] += 1
    for reason, times in sorted(reasons.items()):
        print(f"refused: {reason} ({times})")
    found = ", ".join(f"{what} {times}" for what, times in sorted(counts.items()))
    print(f"{number} models: {found}, failed {failed}; largest difference {worst:.1e}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
