"""Tags that mark no entities: each word has one, such as its part of speech."""

import collections
import itertools
from collections.abc import Iterable

import numpy as np

from training import metrics
from errors import UserError
from text.graphs import tags_graph
from training.finetuning.tag_scheme import SPACE, TagScheme
from training.finetuning.task import Judgement

NAME = "none"  # as --tag_scheme
_WORDS_AROUND = 5  # of a wrong one, in a long sentence
_LONG_SENTENCE = 60  # words


class PlainTags(TagScheme):
    """Any set of tags.

    Args:
        labels: of a trained model, in its order; by default, those of the training set,
            sorted.
    """

    form = "word_tags"
    metric = "accuracy"

    def __init__(self, counts: collections.Counter, labels: Iterable[str] = ()):
        super().__init__(counts)
        self._labels = list(labels)
        self._unknown = {}  # split -> message about tags that were not learned

    @property
    def labels(self):
        return self._labels

    def read(self, sentences, path, split):
        self.learn_characters(sentences, split)
        if split == "train" and not self._labels:
            self._labels = sorted({tag for one in sentences for tag in one.tags})
        if not self._labels:
            return sentences  # refused by the task
        labels = set(self._labels)
        unknown = [
            line
            for one in sentences
            for line, tag in zip(one.lines, one.tags, strict=True)
            if tag not in labels
        ]
        if len(unknown) == sum(len(one.tags) for one in sentences):
            tag, line = sentences[0].tags[0], sentences[0].lines[0]
            raise UserError(
                f"{path}:{line}: neither {tag!r} nor any other tag of the file is one of "
                f"the {len(labels)} learned ones, such as {self._labels[0]!r}; check "
                "--tag_column"
            )
        if unknown:
            self._unknown[split] = (
                f"word(s) have a tag that was not learned, the first in {path}:"
                f"{unknown[0]}, and count as mistakes"
            )
        return sentences

    def encode(self, tags, split):
        numbers = {label: number for number, label in enumerate(self._labels)}
        label_ids = np.array([numbers.get(tag, -1) for tag in tags], np.int64)
        self.counts[
            f"words have one of {len(numbers)} tags that mark no entities "
            f"(--tag_scheme={NAME})"
        ] += len(tags)
        if split in self._unknown:
            self.counts[self._unknown[split]] += int(np.sum(label_ids < 0))
        return np.maximum(label_ids, 0), (label_ids >= 0).astype(np.float32)

    def score(self, sentences, logits):
        gold, predicted = [], []
        for one, sentence_logits in zip(sentences, logits, strict=True):
            gold += self.tags_to_score(one.words, one.tags)
            predicted += self.tags_to_score(
                one.words, self._predicted_tags(sentence_logits)
            )
        gold, predicted = np.array(gold), np.array(predicted)
        return {
            "accuracy": metrics.accuracy(gold, predicted),
            "f1_macro": metrics.f1(gold, predicted, "macro"),
        }

    def trivial_score(self, sentences):
        counts = collections.Counter(
            itertools.chain.from_iterable(
                self.tags_to_score(one.words, one.tags) for one in sentences
            )
        )
        return max(counts.values()) / counts.total()

    def judge(self, sentence, logits):
        predicted_tags = self._predicted_tags(logits)
        chances = metrics.softmax(logits)
        numbers = {label: number for number, label in enumerate(self._labels)}
        wrong, pairs, error = [], [], 0.0
        for place, (word, gold, predicted) in enumerate(
            zip(sentence.words, sentence.tags, predicted_tags, strict=True)
        ):
            if word == SPACE:
                continue
            pairs.append((gold, predicted))
            if gold in numbers:
                error -= float(np.log(max(chances[place, numbers[gold]], 1e-12)))
            if gold != predicted:
                wrong.append(place)
        yield Judgement(
            text=self._show(sentence.words, wrong),
            gold=_list_wrong(sentence, sentence.tags, wrong),
            predicted=_list_wrong(sentence, predicted_tags, wrong),
            error=error / max(len(pairs), 1),
            pairs=pairs,
        )

    def _show(self, words, wrong):
        """The words, the wrong ones in brackets; of a long sentence, those around them."""
        kept = range(len(words))
        if len(words) > _LONG_SENTENCE:
            kept = sorted(
                {
                    place
                    for middle in wrong
                    for place in range(
                        max(middle - _WORDS_AROUND, 0),
                        min(middle + _WORDS_AROUND + 1, len(words)),
                    )
                }
            )
        marked, shown, before = set(wrong), [], -1
        for place in kept:
            if place > before + 1:
                shown.append("…")
            shown.append(f"[{words[place]}]" if place in marked else words[place])
            before = place
        if before < len(words) - 1:
            shown.append("…")
        return self.separator.join(shown)

    def answer(self, words, logits):
        return {
            "tags": self._predicted_tags(logits),
            "probabilities": metrics.softmax(logits).max(axis=1).tolist(),
        }

    def serve(self, words, labels):
        return tags_graph.plain(words, labels, self._labels)

    def state(self):
        return {"tag_scheme": NAME, "tags": self._labels} | super().state()

    def _predicted_tags(self, logits):
        return [self._labels[number] for number in logits.argmax(axis=1)]


def _list_wrong(sentence, marks, wrong):
    """The words with a wrong tag, each with one of the tags."""
    return " ".join(f"{sentence.words[place]}/{marks[place]}" for place in wrong)
