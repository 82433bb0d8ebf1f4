"""Computes scores of rankings, as trec_eval does.

Passages of equal score are ordered as in trec_eval, by descending id, whatever their order
in a run; scores are compared as float32, as there.

Source: usnistgov/trec_eval@v9.0.8, form_res_rels.c and m_map.c, m_recip_rank.c,
    m_recall.c, m_ndcg_cut.c.
"""

import math
from collections.abc import Mapping

import numpy as np

_RECALL_DEPTHS = (1, 10, 100)
DEPTH = 100  # beyond which a run does not count
_DEPTH = 10  # of MRR and nDCG


def score_run(
    relevant: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Means over the queries of `relevant`; one that the run leaves out scores 0.

    Args:
        relevant: query -> passage -> how relevant it is; each query has one above 0.
        run: query -> passage -> score.
    Returns:
        recall@1, recall@10, recall@100, mrr@10, ndcg@10 and map@100.
    """
    each = [
        score_query(scores, rank(run.get(query, {})))
        for query, scores in relevant.items()
    ]
    return {name: sum(one[name] for one in each) / len(each) for name in each[0]}


def rank(found: Mapping[str, float]) -> list[str]:
    """The passages of one query, the best first."""
    # Of equal scores, the larger id; UTF-8 has the order of code points.
    return sorted(found, key=lambda id: (np.float32(found[id]), id), reverse=True)


def score_query(relevant: Mapping[str, int], ranking: list[str]) -> dict[str, float]:
    """The scores of one query by name."""
    gains = [relevant.get(passage, 0) for passage in ranking[:DEPTH]]
    ideal = sorted(relevant.values(), reverse=True)
    number = sum(gain > 0 for gain in ideal)
    places = [i for i, gain in enumerate(gains) if gain > 0]
    values = {
        f"recall@{depth}": sum(i < depth for i in places) / number
        for depth in _RECALL_DEPTHS
    }
    first = places[0] if places else _DEPTH
    values[f"mrr@{_DEPTH}"] = 1 / (first + 1) if first < _DEPTH else 0.0
    values[f"ndcg@{_DEPTH}"] = _discounted_gain(gains[:_DEPTH]) / _discounted_gain(
        ideal[:_DEPTH]
    )
    precisions = [(n + 1) / (i + 1) for n, i in enumerate(places)]
    values[f"map@{DEPTH}"] = sum(precisions) / number
    return values


def _discounted_gain(gains):
    return sum(gain / math.log2(i + 2) for i, gain in enumerate(gains))
