"""Tags that mark entities: how they are learned, scored and judged."""

import collections
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from training import metrics
from errors import UserError
from text.graphs import tags_graph
from text.tasks import tags
from text.tasks.tag_files import Sentence
from training.finetuning.tag_scheme import SPACE, TagScheme
from training.finetuning.task import Judgement

_NO_ENTITY = "no entity"
_WORDS_AROUND = 50  # of an entity


class Entities(TagScheme):
    """Entities in any scheme of tags; the network uses IOB2.

    Args:
        types: all types; by default, those of the training set, sorted.
        scheme: one of `tags.SCHEMES`; by default, the first set read decides.
    """

    form = "tags"

    def __init__(
        self,
        counts: collections.Counter,
        types: Sequence[str] = (),
        scheme: str | None = None,
    ):
        super().__init__(counts)
        self.types = tuple(types)
        self.name = scheme
        self._schemes = {}  # split -> that of its file
        self._faults = {}  # split -> message about tags that break it, and how many

    @property
    def metric(self):
        return "f1_macro" if self.is_by_character else "f1"

    @property
    def labels(self):
        """O, then B and I of each type."""
        return tags.labels_of(self.types) if self.types else []

    def read(self, sentences, path, split):
        for sentence in sentences:
            for line, tag in zip(sentence.lines, sentence.tags, strict=True):
                if not tags.is_tag(tag):
                    raise UserError(
                        f"{path}:{line}: {tag!r} is not a tag of an entity; these are O "
                        "outside of entities and begin with B-, I-, E- or S- inside"
                        f"{tags.hint(tag)}; check --tag_column, or pass "
                        "--tag_scheme=none to train for any tags"
                    )
        self.learn_characters(sentences, split)
        self.name = self.name or tags.detect(one.tags for one in sentences)
        scheme, faults = self.name, _faults(sentences, self.name)
        if faults:
            scheme = tags.detect(one.tags for one in sentences)
            faults = _faults(sentences, scheme)
        self._schemes[split] = scheme
        if faults:
            message = (
                f"tag(s) break the rules of {scheme}, the first in {path}:{faults[0]}, and "
                "are read as conlleval reads them"
            )
            self._faults[split] = message, len(faults)
        if split == "train" and not self.types:
            self.types = _types(sentences)
            if not self.types:
                raise UserError(f"{path}: contains no entities; check --tag_column")
        if self.types:
            _check_types(sentences, self.types, path)
        if scheme != self.name:
            sentences = [
                one._replace(tags=_in(self.name, one.tags)) for one in sentences
            ]
        return sentences

    def encode(self, marks, split):
        scheme = self._schemes.get(split, self._scheme_name)
        self.counts[f"words are tagged in {scheme}"] += len(marks)
        if split in self._faults:
            message, number = self._faults[split]
            self.counts[message] = number
        numbers = {label: number for number, label in enumerate(self.labels)}
        marks = tags.mark(tags.entities(marks), len(marks), "iob2")
        return np.array([numbers[mark] for mark in marks]), np.ones(len(marks))

    def score(self, sentences, logits):
        # Before spaces are left out, because an entity may begin with one.
        sides = {scheme: ([], []) for scheme in (self._scheme_name, "iob2")}
        for one, sentence_logits in zip(sentences, logits, strict=True):
            entities = self._predicted_entities(sentence_logits)
            for scheme, (gold, predicted) in sides.items():
                is_own = scheme == self._scheme_name
                true = one.tags if is_own else _in(scheme, one.tags)
                answer = tags.mark(entities, len(one.words), scheme)
                gold.append(self.tags_to_score(one.words, true))
                predicted.append(self.tags_to_score(one.words, answer))
        written = map(
            list, map(itertools.chain.from_iterable, sides[self._scheme_name])
        )
        sides = sides["iob2"]
        numbered = [_number_entities(map(tags.entities, side)) for side in sides]
        scores = metrics.precision_recall_f1(*numbered)
        scores["accuracy"] = metrics.accuracy(*written)
        for kind in filter(None, self.types):
            some = ({e for e in side if e[1] == kind} for side in numbered)
            for name, value in metrics.precision_recall_f1(*some).items():
                scores[f"{name}_{kind}"] = value
        if self.is_by_character:
            scores = klue_scores(*sides, self.labels) | scores
        return scores

    def trivial_score(self, sentences):
        return 0.0  # for finding nothing

    def judge(self, sentence, logits):
        true = tags.entities(sentence.tags)
        return judge(
            sentence.words,
            (true, self._predicted_entities(logits)),
            metrics.softmax(logits),
            self.labels,
            tags.mark(true, len(sentence.words), "iob2"),
            self.separator,
        )

    def answer(self, words, logits):
        entities = self._predicted_entities(logits)
        return {
            "tags": tags.mark(entities, len(words), self._scheme_name),
            "probabilities": metrics.softmax(logits).max(axis=1).tolist(),
            "entities": [
                {
                    "text": self.separator.join(words[start:stop]),
                    "type": kind,
                    "start": start,
                    "stop": stop,
                }
                for kind, start, stop in entities
                if list(words[start:stop]) != [SPACE]
            ],
        }

    def serve(self, words, labels):
        return tags_graph.read(
            words, labels, self.types, self._scheme_name, self.separator
        )

    def state(self):
        return {"entity_types": self.types, "tag_scheme": self.name} | super().state()

    @property
    def _scheme_name(self):
        return self.name or "iob2"

    def _predicted_entities(self, logits):
        labels = self.labels
        return tags.entities([labels[n] for n in logits.argmax(axis=1)])


def _types(sentences):
    types = {
        entity.kind for sentence in sentences for entity in tags.entities(sentence.tags)
    }
    return tuple(sorted(types))


def _check_types(sentences, types, path):
    for sentence in sentences:
        for entity in tags.entities(sentence.tags):
            if entity.kind not in types:
                raise UserError(
                    f"{path}:{sentence.lines[entity.start]}: entity type {entity.kind!r} "
                    f"is not one of {', '.join(types)}, the types of the training set or "
                    "--entity_types"
                )


def _faults(sentences: Sequence[Sentence], scheme: str) -> list[int]:
    """The lines whose tags the scheme does not allow."""
    return [
        sentence.lines[word]
        for sentence in sentences
        for word in tags.faults(sentence.tags, scheme)
    ]


def _in(scheme: str, marks: Sequence[str]) -> tuple[str, ...]:
    """The tags of the same entities in a scheme."""
    return tuple(tags.mark(tags.entities(marks), len(marks), scheme))


def _number_entities(side):
    """The entities of all sentences, each with the number of its sentence."""
    return {(number, *entity) for number, some in enumerate(side) for entity in some}


def klue_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: list[str]
) -> dict[str, float]:
    """KLUE-NER's scores of characters without spaces, tagged in IOB2.

    `f1_macro` is the mean F1 of the types, where an entity has to begin with B.
    `character_f1_macro` is the mean F1 of the labels, O too. KLUE's script also counts the
    labels at [CLS] and [SEP], which have none here.

    Source: KLUE-benchmark/KLUE-baseline@443c38b metrics/functional.py,
    klue_ner_entity_macro_f1 and klue_ner_char_macro_f1.

    Args:
        gold, predicted: the tags of each sentence.
        labels: all tags.
    """
    sides = [
        _number_entities(map(tags.strict_entities, side)) for side in (gold, predicted)
    ]
    kinds = sorted({entity[1] for side in sides for entity in side})
    f1s = [
        metrics.precision_recall_f1(
            *({e for e in side if e[1] == kind} for side in sides)
        )["f1"]
        for kind in kinds
    ]
    flat = (list(itertools.chain.from_iterable(side)) for side in (gold, predicted))
    return {
        "f1_macro": float(np.mean(f1s)) if f1s else 0.0,
        "character_f1_macro": metrics.f1_of_labels(*flat, labels),
    }


# === The page of mistakes ============================================================


def judge(
    words: Sequence[str],
    entities: tuple[list, list],
    probabilities: np.ndarray,
    labels: list[str],
    true_labels: list[str],
    separator: str = " ",
) -> Iterator[Judgement]:
    """Judges each entity of a sentence that is in the file, or was found, or both.

    Args:
        entities: the true and the found `tags.Entity`s.
        probabilities: float [words, labels].
        labels: IOB2 tags, one for each column.
        true_labels: those of the words.
        separator: what is between words.
    """
    losses = -np.log(np.maximum(probabilities, 1e-12))
    numbers = {label: number for number, label in enumerate(labels)}
    kinds = list(dict.fromkeys(label[2:] for label in labels if label != tags.OUTSIDE))

    def loss(start, stop, marks):
        places = np.arange(start, stop), [numbers[mark] for mark in marks]
        return float(losses[places].sum())

    true, predicted = (
        {(start, stop): kind or "entity" for kind, start, stop in side}
        for side in entities
    )
    for start, stop in sorted(true | predicted):
        size = stop - start
        chances = {_NO_ENTITY: math.exp(-loss(start, stop, [tags.OUTSIDE] * size))}
        for kind in kinds:
            marks = tags.mark([tags.Entity(kind, 0, size)], size, "iob2")
            chances[kind or "entity"] = math.exp(-loss(start, stop, marks))
        yield Judgement(
            text=_in_context(words, start, stop, separator),
            gold=true.get((start, stop), _NO_ENTITY),
            predicted=predicted.get((start, stop), _NO_ENTITY),
            error=loss(start, stop, true_labels[start:stop]),
            probabilities=chances,
        )


def _in_context(
    words: Sequence[str], start: int, stop: int, separator: str = " "
) -> str:
    """The words `start` to `stop` in brackets, among those around them."""
    first, last = max(start - _WORDS_AROUND, 0), stop + _WORDS_AROUND
    before, after = words[first:start], words[stop:last]
    before = ("…", *before) if first else before
    after = (*after, "…") if last < len(words) else after
    return separator.join((*before, f"[{separator.join(words[start:stop])}]", *after))
