"""The release's sentence pairs and masks, straight and slow: an oracle for text/.

Source: google-research/bert@eedf571 create_pretraining_data.py:223-437, retold.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Pair(NamedTuple):
    a: list
    b: list
    is_random: bool


def create_pairs(
    documents: list[list[list]],
    max_num_tokens: int,
    short_seq_prob: float,
    rng: random.Random,
) -> list[Pair]:
    """One pass over documents, which are lists of sentences, which are lists of tokens."""
    pairs = []
    for own, document in enumerate(documents):
        target = _target(max_num_tokens, short_seq_prob, rng)
        chunk = []
        position = 0
        while position < len(document):
            chunk.append(document[position])
            if sum(map(len, chunk)) >= target or position == len(document) - 1:
                pair, unused = _split(documents, own, chunk, target, rng)
                pairs.append(_cut(pair, max_num_tokens, rng))
                position -= unused
                chunk = []
            position += 1
    return pairs


def _target(max_num_tokens, short_seq_prob, rng):
    if rng.random() < short_seq_prob:
        return rng.randint(2, max_num_tokens)
    return max_num_tokens


def _split(documents, own, chunk, target, rng):
    """The pair that a chunk gives, and how many of its sentences it leaves unused."""
    a_end = 1
    if len(chunk) > 1:
        a_end = rng.randint(1, len(chunk) - 1)
    a = sum(chunk[:a_end], [])
    if len(chunk) > 1 and rng.random() >= 0.5:
        return Pair(a, sum(chunk[a_end:], []), False), 0
    b = _random_side(documents, own, target - len(a), rng)
    return Pair(a, b, True), len(chunk) - a_end


def _random_side(documents, own, wanted, rng):
    other = own
    while other == own:
        other = rng.randrange(len(documents))
    document = documents[other]
    side = []
    for sentence in document[rng.randrange(len(document)) :]:
        side = side + sentence
        if len(side) >= wanted:
            break
    return side


def _cut(pair, max_num_tokens, rng):
    a, b = list(pair.a), list(pair.b)
    while len(a) + len(b) > max_num_tokens:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
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
) -> tuple[list[int], list[int]]:
    """Returns a row's corrupted tokens and the sorted positions to predict."""
    words = []
    for position, is_candidate in enumerate(candidates):
        if not is_candidate:
            continue
        goes_on = whole_words and is_continuation[tokens[position]]
        if goes_on and candidates[position - 1]:
            words[-1].append(position)
        else:
            words.append([position])
    wanted = round((sum(candidates) + 3) * masked_lm_prob)
    wanted = min(max_predictions, max(1, wanted))
    rng.shuffle(words)
    corrupted, chosen = list(tokens), []
    for word in words:
        if len(chosen) >= wanted:
            break
        if len(chosen) + len(word) > wanted:
            continue
        for position in word:
            draw = rng.random()
            chosen.append(position)
            corrupted[position] = _corrupt(
                tokens[position], draw, mask_id, vocabulary_size, rng
            )
    return corrupted, sorted(chosen)


def _corrupt(token, draw, mask_id, vocabulary_size, rng):
    if draw < 0.8:
        return mask_id
    if draw < 0.9:
        return token
    return rng.randrange(vocabulary_size)


def furthest(samples: Iterable[dict], others: Iterable[dict]) -> tuple[str, float]:
    """The statistic whose means differ most, and by how many standard errors."""
    samples, others = list(samples), list(others)
    distances = {}
    for name in samples[0]:
        x, y = (np.array([s[name] for s in side]) for side in (samples, others))
        error = np.sqrt(x.var() / len(x) + y.var() / len(y))
        distances[name] = abs(x.mean() - y.mean()) / max(error, 1e-9)
    return max(distances.items(), key=lambda item: item[1])
