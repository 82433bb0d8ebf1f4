"""Rankings are scored as trec_eval scores them, which breaks ties by descending id."""

import os

import numpy as np
import pytest

from training.finetuning import ranking_metrics

RELEVANT = {
    "q1": {"p1": 1, "p3": 2, "p9": 1, "p5": 0},
    "q2": {"p2": 1},
    "q3": {"p1": 1, "p2": 3},
    "q4": {"p7": 1},
}
RUN = {
    # p3 and p4 are equal, and p10 and p9 are, of which p9 is the larger string.
    "q1": {"p2": 0.9, "p3": 0.5, "p4": 0.5, "p10": 0.2, "p9": 0.2, "p1": -1.0},
    "q2": {f"p{i}": 20.0 - i for i in range(3, 16)} | {"p2": 1.0},
    # Different numbers, and one as float32.
    "q3": {"p1": 0.1, "p2": 0.1 + 1e-12, "p3": 0.05},
}
# pytrec_eval-terrier 0.5.11 (trec_eval 9.0.8), means over the four queries.
EXPECTED = {
    "recall@1": 0.125,
    "recall@10": 0.5,
    "recall@100": 0.75,
    "mrr@10": 1 / 3,
    "ndcg@10": 0.39267996137114813,
    "map@100": 0.37896825396825395,
}


def test_scores_are_those_of_trec_eval():
    assert ranking_metrics.score_run(RELEVANT, RUN) == pytest.approx(EXPECTED)


def test_scores_equal_pytrec_evals_on_random_runs_with_ties():
    if os.environ.get("ORACLES") != "required":
        pytest.importorskip("pytrec_eval")
    import pytrec_eval

    random = np.random.default_rng(0)
    for number in range(40):
        passages = [f"{i}" for i in range(random.integers(1, 300))]
        relevant, run = {}, {}
        for query in map(str, range(random.integers(1, 8))):
            judged = random.permutation(passages)[: random.integers(1, 30)]
            scores = {str(p): int(random.integers(0, 4)) for p in judged}
            relevant[query] = scores | {str(judged[0]): 2}
            found = random.permutation(passages)[: random.integers(1, 150)]
            digits = int(random.integers(0, 3))
            run[query] = {
                str(p): float(np.float32(round(random.random(), digits))) for p in found
            }
        ours = ranking_metrics.score_run(relevant, run)
        for name, value in pytrec_evals(pytrec_eval, relevant, run).items():
            assert ours[name] == pytest.approx(value, abs=1e-6), (number, name)


def pytrec_evals(pytrec_eval, relevant, run):
    """MRR@10 has no name there: it is the reciprocal rank among the first ten."""
    names = {f"recall_{k}" for k in (1, 10, 100)} | {"ndcg_cut_10", "map_cut_100"}
    scores = pytrec_eval.RelevanceEvaluator(relevant, names).evaluate(run)
    first = {
        query: {p: run[query][p] for p in ranking_metrics.rank(run[query])[:10]}
        for query in run
    }
    ranks = pytrec_eval.RelevanceEvaluator(relevant, {"recip_rank"}).evaluate(first)

    def mean(values, name):
        return sum(values[query][name] for query in relevant) / len(relevant)

    means = {
        name.replace("_cut", "").replace("_", "@"): mean(scores, name) for name in names
    }
    return means | {"mrr@10": mean(ranks, "recip_rank")}
