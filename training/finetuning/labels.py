"""What a classifier predicts: one class of several, any number of them, or a number.

Each kind of label parses the values in files, makes the field of a row, scores and explains
predictions, and answers in a SavedModel.
"""

import abc
import contextlib
import copy
import math
import re
import unicodedata
from collections.abc import Callable, Mapping

import numpy as np

from training import metrics
from training.backend import tf
from errors import UserError
from modeling.objectives import tasks
from modeling.objectives.objective import Objective
from serving.integrated_gradients import Scores
from text.graphs import windows_graph
from text.records.rows import Field
from text.tasks.glue import DataSet
from training.finetuning.calibration import Calibration

MOST_NAMED = 20  # labels that the log counts and that messages list
_NO_LABEL = "(no label)"
_LARGEST = float(np.finfo(np.float32).max)
# float() also accepts 1_000, and the digits of every script.
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")

_OTHER_FORM = (
    "label {!r} is there in two of Unicode's forms, NFC and NFD, which look the same; "
    "convert the files to one form, such as with uconv -x any-nfc"
)

Score = Callable[[np.ndarray, np.ndarray], float]  # gold, predicted -> metric


def _compose(name):
    return unicodedata.normalize("NFC", name)


class Labels(abc.ABC):
    """One kind of label.

    Attributes:
        names: of the classes as files have them, in order; () while none are known, None
            for numbers.
        form: of the answers; one of `forms.FORMS`.
        field_name, field: the field of a row that holds the label.
        unlabelled: values that mean "no label" in a test set.
        calibration: of the probabilities in answers.
    """

    names: tuple[str, ...] | None = None
    form: str
    field_name = "label_ids"
    field = Field("int64")
    unlabelled: tuple = (None, "")
    calibration = Calibration()

    @abc.abstractmethod
    def read(self, value: object, where: str):
        """A label from a table cell or a JSON value.

        Raises:
            UserError: it is not a label; names `where`.
        """

    @abc.abstractmethod
    def encode(self, labels: list) -> np.ndarray:
        """Labels as [n] class numbers, [n, classes] of 0 and 1, or [n] numbers."""

    @abc.abstractmethod
    def objective(self) -> Objective:
        """What is trained."""

    @abc.abstractmethod
    def predict(self, logits: np.ndarray) -> np.ndarray:
        """float [n, outputs] -> what `encode` would return."""

    @abc.abstractmethod
    def trivial_score(self, gold: np.ndarray, metric: str, score: Score) -> float:
        """The best score of a constant answer."""

    @abc.abstractmethod
    def answers(self, logits: np.ndarray) -> list[dict]:
        """The answer for each text, in the form `form`."""

    @abc.abstractmethod
    def serve(self, logits) -> dict:
        """The same answers in a graph, from tensors [b, outputs]."""

    def scores_to_explain(self, batch, of_rows, owners, logits, pooling: str) -> Scores:
        """The logits of what is answered: of several labels, of the clearest one, and
        where none is answered, of the nearest.

        Args:
            batch: the rows.
            of_rows: their logits, [rows, outputs].
            owners: int32 [rows], the text of each; None if each has one row.
            logits: of the texts, [b, outputs].
            pooling: see `text_windows.pool`.
        """
        margins = logits - tf.constant(self.calibration.cuts or 0.0, tf.float32)
        best = tf.argmax(margins, axis=1, output_type=tf.int32)
        number = tf.size(best)
        owners = tf.range(number) if owners is None else owners
        place = tf.gather(best, owners)
        values = tf.gather(of_rows, place, batch_dims=1)
        return Scores(
            batch,
            tf.range(tf.size(owners)),
            {"logits": place[:, None]},
            windows_graph.shares(values, owners, number, pooling),
            owners[:, None],
            labels={"label": tf.gather(self.names, best)} if self.names else {},
        )

    @property
    def with_display_names(self) -> "Labels":
        """The same labels as people call them; also reads what files call them."""
        return self

    @abc.abstractmethod
    def compare(self, label, answer: dict) -> tuple[str, str, float]:
        """The true and the predicted label for a person to read, and the loss."""

    def classes(self, label) -> tuple[str, ...]:
        """The classes of one label."""
        return ()


class Number(Labels):
    """A number to predict.

    Args:
        bounds: the lowest and the highest allowed; by default, those of float32.
    """

    form = "number"
    field_name = "label_values"
    field = Field("float32")

    def __init__(self, bounds: tuple[float, float] | None = None):
        self.bounds = bounds

    def read(self, value, where):
        is_written = isinstance(value, str) and _NUMBER.fullmatch(value.strip())
        number = math.nan
        if is_written or type(value) in (int, float):  # isinstance would accept true
            with contextlib.suppress(OverflowError):  # too large for a float
                number = float(value)
        lowest, highest = self.bounds or (-_LARGEST, _LARGEST)
        if not lowest <= number <= highest:
            allowed = "within the range of float32"
            if self.bounds:
                allowed = f"from {lowest:g} to {highest:g}"
            raise UserError(f"{where}: label {value!r:.40} is not a number {allowed}")
        return number

    def encode(self, labels):
        return np.array(labels)

    def objective(self):
        return tasks.Regression()

    def predict(self, logits):
        return logits[:, 0]

    def trivial_score(self, gold, metric, score):
        return score(gold, np.full(len(gold), gold.mean()))

    def answers(self, logits):
        return [{"predicted": float(value)} for value in logits[:, 0]]

    def serve(self, logits):
        return {"predicted": logits[:, 0]}

    def compare(self, label, answer):
        predicted = answer["predicted"]
        return f"{label:g}", f"{predicted:.3f}", abs(predicted - label)


class OneClass(Labels):
    """One class of several.

    Args:
        names: in order; () to learn them from the training set.
        relabel: other spellings in files -> names.
        display_names: what people call the labels; () for the names.
    Raises:
        UserError: there are not as many display names as names.
    """

    form = "label"

    def __init__(
        self,
        names: tuple[str, ...],
        relabel: Mapping[str, str] = {},
        display_names: tuple[str, ...] = (),
    ):
        self._display_names = display_names
        self.names = names
        self.relabel = relabel

    @property
    def names(self):
        return self._names

    @names.setter
    def names(self, names):
        self._names = tuple(names)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._check_display_names()

    @property
    def display_names(self):
        return self._display_names or self._names

    @display_names.setter
    def display_names(self, names):
        self._display_names = tuple(names)
        self._check_display_names()

    def _check_display_names(self):
        number = len(self.display_names)
        if self._names and number != len(self._names):
            raise UserError(
                f"--label_names: {number} names for {len(self._names)} labels; name "
                f"each of {spell(self._names)}, in this order"
            )

    @property
    def with_display_names(self):
        shown = copy.copy(self)
        shown.relabel = dict(zip(self._names, self.display_names, strict=True))
        shown.names = self.display_names
        return shown

    def read(self, value, where):
        return self._read_class(value, where)

    def _read_class(self, value, where):
        """A class as text; in JSON it may be a whole number."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UserError(
                f"{where}: label {value!r:.40} is neither text nor a whole number"
            )
        name = str(value).strip()
        name = self.relabel.get(name, name)
        if not name:
            raise UserError(f"{where}: has no label; add one or remove the line")
        if self.names and name not in self._numbers:
            if _compose(name) in map(_compose, self.names):
                raise UserError(f"{where}: {_OTHER_FORM.format(name)}")
            raise UserError(
                f"{where}: label {name!r:.40} is not one of {spell(self.names)}; check "
                "--task_name and --label_column, or list every label in --labels (those "
                "of a teacher are fixed)"
            )
        return name

    def learn(self, labels: list, path: str) -> None:
        """Learns the names from a training set; sorts them."""
        if not labels:
            raise UserError(
                "the teacher does not note its labels, and the training set has none; "
                "pass --labels in the teacher's order"
            )
        names = sorted({name for label in labels for name in self.classes(label)})
        if len(names) < 2:
            raise UserError(
                f"{path}: all labels are {names}; at least two different ones are needed; "
                "check --label_column"
            )
        composed = {}
        for name in names:
            if composed.setdefault(_compose(name), name) != name:
                raise UserError(f"{path}: {_OTHER_FORM.format(name)}")
        self.names = tuple(names)

    def classes(self, label):
        return (label,)

    def encode(self, labels):
        return np.array([self._numbers[label] for label in labels])

    def objective(self):
        return tasks.Classification(len(self.names))

    def predict(self, logits):
        return logits.argmax(axis=1)

    def trivial_score(self, gold, metric, score):
        if metric == "accuracy":
            return float(np.bincount(gold).max() / len(gold))
        same = (np.full(len(gold), number) for number in range(len(self.names)))
        return max(score(gold, answer) for answer in same)

    def answers(self, logits):
        return [
            {
                "predicted": self._name_answer(answer),
                "probabilities": dict(zip(self.names, row, strict=True)),
            }
            for answer, row in zip(
                # Not by probabilities, which may be 1 for several logits.
                self.predict(logits),
                self._probabilities(logits).tolist(),
                strict=True,
            )
        ]

    def _probabilities(self, logits):
        return metrics.softmax(self.calibration.scale(logits))

    def _name_answer(self, answer):
        """What people read of one of the answers of `predict`."""
        return self.names[answer]

    def serve(self, logits):
        names = tf.repeat([self.names], tf.shape(logits)[0], axis=0)
        return {"labels": names, **self._serve_answer(logits, names)}

    def _serve_answer(self, logits, names):
        return {
            "predicted": tf.gather(self.names, tf.argmax(logits, axis=1)),
            "probabilities": tf.nn.softmax(self.calibration.scale(logits)),
        }

    def compare(self, label, answer):
        gold, predicted = self.classes(label), self.classes(answer["predicted"])
        loss = -sum(map(math.log, self._chances(gold, answer["probabilities"])))
        gold = ", ".join(sorted(set(gold), key=self._numbers.get)) or _NO_LABEL
        return gold, ", ".join(predicted) or _NO_LABEL, loss

    def _chances(self, gold, probabilities):
        """The probabilities of what is true."""
        return [max(probabilities[name], 1e-12) for name in gold]


class SeveralClasses(OneClass):
    """Any number of classes, possibly none: a JSON list, or text with a separator."""

    form = "labels"
    unlabelled = (None,)  # "" means no classes

    def __init__(
        self,
        names: tuple[str, ...],
        separator: str,
        display_names: tuple[str, ...] = (),
    ):
        super().__init__(names, display_names=display_names)
        self.separator = separator

    @property
    def field(self):
        return Field("int64", (len(self.names),))

    def read(self, value, where):
        if isinstance(value, str):
            value = [part for part in value.split(self.separator) if part.strip()]
        if not isinstance(value, list | tuple):
            raise UserError(
                f"{where}: {value!r:.40} is neither a list of labels nor text"
            )
        return tuple(self._read_class(part, where) for part in value)

    def classes(self, label):
        return tuple(label)

    def encode(self, labels):
        gold = np.zeros((len(labels), len(self.names)), int)
        for row, label in zip(gold, labels, strict=True):
            row[[self._numbers[name] for name in label]] = 1
        return gold

    def objective(self):
        return tasks.MultiLabel(len(self.names))

    def predict(self, logits):
        return (logits > (self.calibration.cuts or 0)).astype(int)

    def trivial_score(self, gold, metric, score):
        # Micro F1 of always answering the k most frequent classes, for the best k.
        counts = np.sort(gold.sum(axis=0))[::-1]
        flags = len(gold) * np.arange(1, len(counts) + 1)
        return float(np.max(2 * np.cumsum(counts) / (flags + counts.sum())))

    def _probabilities(self, logits):
        return metrics.sigmoid(self.calibration.scale(logits))

    def _name_answer(self, answer):
        parts = zip(self.names, answer, strict=True)
        return [name for name, has_it in parts if has_it]

    def _serve_answer(self, logits, names):
        probabilities = tf.sigmoid(self.calibration.scale(logits))
        cuts = self.calibration.cuts
        # Not by thresholds, because float32 has few probabilities near 1.
        has = logits > tf.constant(cuts, tf.float32) if cuts else probabilities > 0.5
        return {
            "predicted": tf.where(has, names, ""),
            "probabilities": probabilities,
        }

    def _chances(self, gold, probabilities):
        return [
            max(p if name in gold else 1 - p, 1e-12)
            for name, p in probabilities.items()
        ]


def spell(names) -> str:
    """The first few names, for a message."""
    more = ", ..." if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def make(data: DataSet, separator: str | None) -> Labels:
    """The kind of label that a set has.

    Args:
        separator: of the labels of a text, if it may have several.
    """
    if data.labels is None:
        return Number(data.bounds)
    if separator is not None:
        return SeveralClasses(data.labels, separator, data.label_names)
    return OneClass(data.labels, data.relabel, data.label_names)


def release_line(answer: Mapping) -> str:
    """An answer as a line of the release's test_results.tsv."""
    if "probabilities" not in answer:
        return str(answer["predicted"])
    return "\t".join(map(str, answer["probabilities"].values()))
