"""The contract of an objective: the network, its losses and metrics.

What an objective needs of records, what its export answers, in what a student is compared
with its teacher, what a row hands to the next, and what else is reported are values, or
absent.
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from keras import ops

from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network
from modeling.masks.draw_masks import DrawMasks


class Needs(NamedTuple):
    """What an objective needs of pre-training records.

    Attributes:
        features: what they must have besides the encoder's inputs and masks.
        sentence_task: what their next_sentence_labels must be about, "next_sentence" or
            "sentence_order"; "" if they are not learned.
        masks: "any": it learns masked tokens, which records hold or a step of the training
            draws; "drawn": records must not hold them; "none": it learns none, and records
            must not hold any.
        mask_shares: shares of the chosen tokens that become [MASK] or a random token, if
            they are not what the flags of the records say.
        rows: arguments of its constructor that describe the records: "tokens", the
            `Tokens` of their vocabulary; "width", of the rows; "reuse_len", how many
            tokens of a row continue the one before.
    """

    features: tuple[str, ...] = ()
    sentence_task: str = ""
    masks: str = "none"
    mask_shares: tuple[float, float] | None = None
    rows: tuple[str, ...] = ()


class Tokens(NamedTuple):
    """What an objective may need to know of a vocabulary.

    Attributes:
        sentinels: ids that stand for spans of a text, in order.
        end_id: of what ends a text.
        pad_id: of what follows it.
        left_out: ids of what is in a row and not text, such as [CLS] and [SEP].
    """

    sentinels: Sequence[int]
    end_id: int
    pad_id: int
    left_out: Sequence[int]


class Exporter(NamedTuple):
    """What an export of the trained network answers.

    Attributes:
        form: of the answers, a row of serving's forms.
        variables: what the names of the variables begin with that give those answers.
        continues_texts: whether it says what follows a text. The encoder must read from
            left to right, and a token that begins rows is put before the text.
    """

    form: str
    variables: tuple[str, ...] = ("",)
    continues_texts: bool = False


def _outputs_of(names):
    return lambda batch, outputs: [outputs[name] for name in names]


class Comparison(NamedTuple):
    """In what a student is compared with its teacher.

    Attributes:
        outputs: of the network.
        weights: batch -> float32, the shape of the logits without their last axis.
        logits: (batch, `outputs` by name) -> list of float32 [b, n] or [b, s, n].
        kind: a key of `soft_answers.COMPARED`.
    """

    outputs: tuple[str, ...]
    weights: Callable
    logits: Callable
    kind: str = "classes"

    @classmethod
    def of(cls, *outputs: str, weights=None, logits=None, kind="classes"):
        """By default, every row counts, and logits are the outputs."""
        logits = logits or _outputs_of(outputs)
        return cls(outputs, weights or row_weights, logits, kind)


class RowState(NamedTuple):
    """What each row of an update hands to the same row of the next.

    Attributes:
        shapes: config -> the shape for one row, by name. These names are in the batches
            and in the outputs of the network in training, float32 [b, ...]; at first they
            are zeros.
        setting: the argument of the objective that asks for it, a flag.
    """

    shapes: Callable[[EncoderConfig], Mapping[str, tuple[int, ...]]]
    setting: str


class Summary(NamedTuple):
    """What is reported besides losses and metrics.

    Attributes:
        compute: (their means by name, the sums of `counts`) -> more, by name.
        counts: (batch, outputs) -> float32 [num_counts, 2], sums to add up.
        num_counts: how many.
    """

    compute: Callable[[Mapping[str, float], Sequence], Mapping[str, float]]
    counts: Callable | None = None
    num_counts: int = 0


def perplexity_of(*loss_names: str) -> Summary:
    """Reports e to the power of a mean loss, the mean of these."""

    def compute(values, counts):
        del counts
        mean = sum(values[name] for name in loss_names) / len(loss_names)
        return {"perplexity": perplexity(mean)}

    return Summary(compute)


def perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def row_weights(batch):
    """float32 [b]: 0.0 for rows that only pad a batch."""
    if "is_real_example" in batch:
        return ops.cast(batch["is_real_example"], "float32")
    return ops.ones(ops.shape(batch["input_ids"])[:1], "float32")


class Objective(abc.ABC):
    """Makes a network, and turns its outputs for a batch into losses and metrics.

    Attributes:
        loss_weights: loss name -> its factor in the sum that is minimized; empty for an
            evaluation whose rows have no loss.
        metric_names: of what `metrics` returns.
        needs: what pre-training records must have.
        of_whole_batch: whether losses compare each row with the others of an update; then
            `losses` and `metrics` get the outputs of all rows at once and, of their batch,
            what is not a sequence.
        exporter, comparison, state, summary: see their classes; None if there is none.
        for_evaluation: the objective of evaluations and exports, whose network has fewer
            variables or the same; by default, itself.
    """

    loss_weights: Mapping[str, float]
    metric_names: tuple[str, ...]
    needs: Needs = Needs()
    of_whole_batch: bool = False
    exporter: Exporter | None = None
    comparison: Comparison | None = None
    state: RowState | None = None
    summary: Summary | None = None

    @property
    def for_evaluation(self) -> "Objective":
        return self

    def check(self, config: EncoderConfig) -> None:
        """Refuses an encoder that cannot learn this.

        Raises:
            UserError: says why, and what to change.
        """
        del config

    def mask_step(self, **settings) -> DrawMasks:
        """The step that draws masks in training, for settings as those of `DrawMasks`."""
        return DrawMasks(**settings)

    @abc.abstractmethod
    def network(
        self, config: EncoderConfig, *, seed: int = 0, dtype: str = "float32"
    ) -> Network:
        """Makes the network.

        Args:
            config: the architecture.
            seed: the same seed gives the same initial weights.
            dtype: "float32" or "mixed_bfloat16"; what losses need is float32 under both.
        """

    def prepare(self, batch, seed) -> dict:
        """Changes a batch on the device before anything else sees it.

        Random choices must be derived from `batch["row_numbers"]`; see
        modeling/row_random.py.

        Args:
            batch: dict of tensors, with masks if it needs them.
            seed: the run's, an int.
        """
        del seed
        return batch

    @abc.abstractmethod
    def weights(self, batch) -> dict:
        """Loss name -> its weight, known before the network runs.

        With gradient accumulation, every micro-batch is divided by the weight of all.
        """

    @abc.abstractmethod
    def losses(self, batch, outputs) -> dict:
        """Loss name -> (sum, weight); see modeling/losses.py.

        Args:
            batch: what `prepare` returned.
            outputs: what the network returned for the batch.
        """

    @abc.abstractmethod
    def metrics(self, batch, outputs) -> dict:
        """Metric name -> (sum, weight); arguments as for `losses`."""


MEMBERS = tuple(name for name in vars(Objective) if not name.startswith("_")) + (
    "loss_weights",
    "metric_names",
)


class _Forwarded:
    """A member of the objective inside, unless the wrapper has its own."""

    def __init__(self, name):
        self._name = name

    def __get__(self, wrapper, owner=None):
        return self if wrapper is None else getattr(wrapper.inner, self._name)


class Wrapped(Objective):
    """Another objective; a subclass changes some of its members."""

    def __init__(self, inner: Objective):
        self.inner = inner


for _name in MEMBERS:
    setattr(Wrapped, _name, _Forwarded(_name))
abc.update_abstractmethods(Wrapped)
