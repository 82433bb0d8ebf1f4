"""How far probabilities can be trusted, and what is fitted so that they can."""

import numpy as np
import pytest
from sklearn import metrics as oracle

from training import metrics
from training.finetuning import calibration, labels
from training.finetuning.calibration import Calibration


def of_probability(p):
    """Logits of two classes; the second has this probability."""
    p = np.asarray(p, np.float64)
    return np.stack([np.zeros_like(p), np.log(p / (1 - p))], axis=-1)


def test_the_error_is_the_mean_gap_of_the_bins():
    # 0.61 to 0.65 share a bin, and 0.95 has its own.
    logits = of_probability([0.61, 0.65, 0.62, 0.95])
    gold = np.array([1, 0, 1, 1])
    gaps = abs(2 / 3 - (0.61 + 0.65 + 0.62) / 3) * 3 + abs(1 - 0.95)
    found = calibration.expected_calibration_error(gold, logits)
    assert found == pytest.approx(gaps / 4)


def test_each_of_several_labels_is_an_answer():
    logits = np.array([[np.log(0.7 / 0.3), np.log(0.2 / 0.8)]])
    gold = np.array([[1, 1]])  # right at 0.7, wrong at 0.8
    found = calibration.expected_calibration_error(gold, logits)
    assert found == pytest.approx((0.3 + 0.8) / 2)


@pytest.mark.parametrize("several", [False, True])
def test_the_temperature_of_exaggerated_logits_is_found(several):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 3))
    if several:
        gold = (rng.random(logits.shape) < metrics.sigmoid(logits)).astype(int)
    else:
        sums = metrics.softmax(logits).cumsum(axis=1)
        gold = (rng.random((len(logits), 1)) > sums).sum(axis=1)
    found = calibration.fit(gold, 2.5 * logits, temperature=True, cuts=False)
    assert found.temperature == pytest.approx(2.5, rel=0.05)
    scores = found.scores(gold, 2.5 * logits, "abc")
    assert scores["ece_calibrated"] < 0.02 < scores["ece"]


def test_a_set_without_mistakes_has_the_lowest_temperature():
    found = calibration.fitted_temperature(np.array([0, 1]), np.eye(2))
    assert found == pytest.approx(0.05)


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_have_the_best_f1_of_each_label(seed):
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(60, 4)), 1)  # with ties
    gold = (logits + rng.normal(size=logits.shape) > 0.7).astype(int)
    cuts = calibration.best_cuts(gold, logits)
    for label, cut in enumerate(cuts):
        values = logits[:, label]
        best = max(
            oracle.f1_score(gold[:, label], values > c)
            for c in [*(np.unique(values) - 0.05), 9]
        )
        found = oracle.f1_score(gold[:, label], values > cut)
        assert found == pytest.approx(best)


def test_a_label_that_is_always_right_or_never_there_keeps_a_half():
    logits = np.array([[1.0, -1.0], [-1.0, 2.0], [2.0, 3.0]])
    gold = np.array([[1, 0], [0, 0], [1, 0]])
    assert calibration.best_cuts(gold, logits) == (0.0, 0.0)
    assert Calibration(2.0, (0.0, 4.0)).thresholds == pytest.approx(
        [0.5, 1 / (1 + np.exp(-2.0))]
    )


def test_nothing_fitted_changes_and_says_nothing():
    nothing, logits = Calibration(), np.ones((1, 2))
    assert nothing.scale(logits) is logits
    assert nothing.description() == {}
    assert nothing.scores(np.array([0]), logits, "ab") == {}


def test_a_label_is_chosen_where_probabilities_are_all_one():
    """Answers agree with the scores and with exports, which compare logits."""
    kind = labels.SeveralClasses(("x", "y"), ",")
    kind.calibration = Calibration(0.05, (2.5, 0.0))
    logits = np.array([[2.4, 1.0], [2.6, -1.0]], np.float32)
    found = kind.answers(logits)
    assert found[0]["probabilities"]["x"] == found[1]["probabilities"]["x"] == 1.0
    assert [answer["predicted"] for answer in found] == [["y"], ["x"]]
    assert kind.predict(logits).tolist() == [[0, 1], [1, 0]]
