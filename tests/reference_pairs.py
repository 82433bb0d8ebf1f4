"""The release's sentence pairs and masks, straight and slow: an oracle for text/.

Source: google-research/bert@eedf571 create_pretraining_data.py:223-437, retold. Each
function can make one named mistake, so that tests can show they would notice it.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

PAIR_MISTAKES = (
    "a target for each pair",
    "no short targets",
    "nothing is put back",
    "labels swapped",
    "a lone sentence is left out",
    "random less often",
    "a is split in the middle",
    "b takes the whole target",
    "b stops before its target",
    "b starts its document",
    "b out of the same document",
    "a chunk stops before its target",
    "a tie takes from a",
    "only the end is cut",
    "both sides are cut alike",
)
MASK_MISTAKES = (
    "each token by itself",
    "specials do not count",
    "round down",
    "halves go up",
    "too few masks",
    "no random tokens",
    "no specials among random tokens",
    "one draw for a whole word",
    "pieces of a word apart",
    "a word too long ends the row",
    "a word too long is taken",
    "the first tokens",
)


class Pair(NamedTuple):
    a: list
    b: list
    is_random: bool


def create_pairs(
    documents: list[list[list]],
    max_num_tokens: int,
    short_seq_prob: float,
    rng: random.Random,
    mistake: str = "",
) -> list[Pair]:
    """One pass over documents, which are lists of sentences, which are lists of tokens."""
    pairs = []
    for own, document in enumerate(documents):
        target = _target(max_num_tokens, short_seq_prob, rng, mistake)
        chunk = []
        position = 0
        while position < len(document):
            if mistake == "a target for each pair" and not chunk:
                target = _target(max_num_tokens, short_seq_prob, rng, mistake)
            chunk.append(document[position])
            reached = sum(map(len, chunk))
            if mistake == "a chunk stops before its target":
                reached += len(document[min(position + 1, len(document) - 1)])
            if reached >= target or position == len(document) - 1:
                pair, unused = _split(documents, own, chunk, target, rng, mistake)
                if mistake != "a lone sentence is left out" or len(chunk) > 1:
                    pairs.append(_cut(pair, max_num_tokens, rng, mistake))
                position -= unused
                chunk = []
            position += 1
    return pairs


def _target(max_num_tokens, short_seq_prob, rng, mistake):
    if rng.random() < short_seq_prob and mistake != "no short targets":
        return rng.randint(2, max_num_tokens)
    return max_num_tokens


def _split(documents, own, chunk, target, rng, mistake):
    """The pair that a chunk gives, and how many of its sentences it leaves unused."""
    a_end = 1
    if len(chunk) > 1:
        a_end = rng.randint(1, len(chunk) - 1)
        if mistake == "a is split in the middle":
            a_end = len(chunk) // 2
    a = sum(chunk[:a_end], [])
    chance = 0.4 if mistake == "random less often" else 0.5
    if len(chunk) > 1 and rng.random() >= chance:
        return Pair(a, sum(chunk[a_end:], []), mistake == "labels swapped"), 0
    wanted = target if mistake == "b takes the whole target" else target - len(a)
    b = _random_side(documents, own, wanted, rng, mistake)
    unused = 0 if mistake == "nothing is put back" else len(chunk) - a_end
    return Pair(a, b, mistake != "labels swapped"), unused


def _random_side(documents, own, wanted, rng, mistake):
    other = own
    while other == own and mistake != "b out of the same document":
        other = rng.randrange(len(documents))
    document = documents[other]
    start = rng.randrange(len(document))
    if mistake == "b starts its document":
        start = 0
    side = []
    for sentence in document[start:]:
        if mistake == "b stops before its target" and len(side + sentence) > wanted:
            return side or sentence
        side = side + sentence
        if len(side) >= wanted:
            break
    return side


def _cut(pair, max_num_tokens, rng, mistake):
    a, b = list(pair.a), list(pair.b)
    while len(a) + len(b) > max_num_tokens:
        if mistake == "both sides are cut alike" and min(len(a), len(b)) > 1:
            longer = rng.choice((a, b))
        elif mistake == "a tie takes from a":
            longer = a if len(a) >= len(b) else b
        else:
            longer = a if len(a) > len(b) else b
        if rng.random() < 0.5 and mistake != "only the end is cut":
            del longer[0]
        else:
            longer.pop()
    return Pair(a, b, pair.is_random)


def mask_row(
    tokens: list[int],
    candidates: list[bool],
    is_continuation: list[bool],
    *,
    masked_lm_prob: float,
    max_predictions: int,
    whole_words: bool,
    mask_id: int,
    vocabulary_size: int,
    rng: random.Random,
    mistake: str = "",
) -> tuple[list[int], list[int]]:
    """Returns a row's corrupted tokens and the sorted positions to predict."""
    words = []
    for position, is_candidate in enumerate(candidates):
        if not is_candidate:
            continue
        goes_on = whole_words and is_continuation[tokens[position]]
        if goes_on and candidates[position - 1] and mistake != "pieces of a word apart":
            words[-1].append(position)
        else:
            words.append([position])
    length = sum(candidates) + (0 if mistake == "specials do not count" else 3)
    wanted = round(length * masked_lm_prob)
    if mistake == "round down":
        wanted = int(length * masked_lm_prob)
    elif mistake == "halves go up":
        wanted = int(length * masked_lm_prob + 0.5)
    elif mistake == "each token by itself":
        wanted = sum(rng.random() < masked_lm_prob for _ in range(length))
    wanted = min(max_predictions, max(1, wanted))

    if mistake != "the first tokens":
        rng.shuffle(words)
    corrupted, chosen = list(tokens), []
    for word in words:
        if len(chosen) >= wanted:
            break
        if len(chosen) + len(word) > wanted:
            if mistake == "a word too long ends the row":
                break
            if mistake == "a word too long is taken":
                word = word[: wanted - len(chosen)]
            else:
                continue
        draw = rng.random()
        for position in word:
            if mistake != "one draw for a whole word":
                draw = rng.random()
            chosen.append(position)
            corrupted[position] = _corrupt(
                tokens[position], draw, mask_id, vocabulary_size, rng, mistake
            )
    return corrupted, sorted(chosen)


def _corrupt(token, draw, mask_id, vocabulary_size, rng, mistake):
    if draw < (0.76 if mistake == "too few masks" else 0.8):
        return mask_id
    if draw < 0.9 or mistake == "no random tokens":
        return token
    first = mask_id + 1 if mistake == "no specials among random tokens" else 0
    return rng.randrange(first, vocabulary_size)


def furthest(samples: Iterable[dict], others: Iterable[dict]) -> tuple[str, float]:
    """The statistic whose means differ most, and by how many standard errors.

    Args:
        samples, others: statistics by name, of several seeds each.
    """
    samples, others = list(samples), list(others)
    distances = {}
    for name in samples[0]:
        x, y = (np.array([s[name] for s in side]) for side in (samples, others))
        error = np.sqrt(x.var() / len(x) + y.var() / len(y))
        distances[name] = abs(x.mean() - y.mean()) / max(error, 1e-9)
    return max(distances.items(), key=lambda item: item[1])
