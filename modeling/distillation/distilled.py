"""Distillation: a student learns to answer as its teacher, on top of any task."""

from collections.abc import Callable, Mapping, Sequence

import keras
from keras import ops

from modeling import layers, losses
from modeling.architectures.config import EncoderConfig
from modeling.distillation.distillation import Distillation
from modeling.distillation.soft_answers import COMPARED
from modeling.objectives.around import AroundNetwork
from modeling.objectives.objective import Objective

TEACHERS = "teacher_"  # what the names of its answers in a batch begin with
SCOPE = "distillation/"  # what the names of variables begin with that only training has

Pairs = Sequence[tuple[int, int]]  # of layers: (of the student, of the teacher)


class Agreement(Objective):
    """How far a network's answers are from a teacher's; nothing is learned.

    A batch contains the teacher's as teacher_<output>, such as teacher_logits.

    Args:
        task: the objective of both.
    """

    loss_weights = {}

    def __init__(self, task: Objective):
        self.task = task
        self.comparison = COMPARED[task.compared_as]
        self.metric_names = tuple(self.comparison.metrics)

    def network(self, config, *, seed=0, dtype="float32"):
        return self.task.network(config, seed=seed, dtype=dtype)

    def weights(self, batch) -> dict:
        return {}

    def losses(self, batch, outputs) -> dict:
        return {}

    def metrics(self, batch, outputs) -> dict:
        return {
            name: self.compare(batch, outputs, compare)
            for name, compare in self.comparison.metrics.items()
        }

    def compare(self, batch, outputs, compare: Callable) -> tuple:
        """(sum, weight) of what a function of `soft_losses` says about the answers."""
        task = self.task
        theirs = {name: batch[TEACHERS + name] for name in task.compared}
        both = zip(
            task.comparable(batch, outputs), task.comparable(batch, theirs), strict=True
        )
        values = [compare(mine, ops.stop_gradient(their)) for mine, their in both]
        weights = task.comparison_weights(batch)
        return losses.weighted_sum(sum(values) / len(values), weights)


class Distilled(Objective):
    """A task's objective, with the teacher's answers as labels besides or instead of gold.

    A batch contains the answers as teacher_<output>, such as teacher_logits, unless a
    teacher is given, which is then asked about every batch.

    Evaluations measure the task alone; see `Objective.measured`.

    Args:
        task: the objective of student and teacher.
        settings: the losses.
        teacher: makes the teacher's network with its weights; called once, where the
            student's network is made. None if batches contain the answers.
        teacher_config: its architecture; None if its answers are all that is known.
    """

    def __init__(
        self,
        task: Objective,
        settings: Distillation,
        teacher: Callable[[], keras.layers.Layer] | None = None,
        teacher_config: EncoderConfig | None = None,
    ):
        self._task, self.settings = task, settings
        self._agreement = Agreement(task)
        self._make_teacher, self._teacher = teacher, None
        self._teacher_config = teacher_config
        self._pairs = {}
        self._has_gold = settings.hard_weight > 0
        factors = {
            "distill_loss": settings.weight,
            "cosine_loss": settings.cosine_weight,
            "hidden_loss": settings.hidden_weight,
            "cls_loss": settings.cls_weight,
            "attention_loss": settings.attention_weight,
        }
        self.loss_weights = {name: factor for name, factor in factors.items() if factor}
        self.metric_names = self._agreement.metric_names
        if self._has_gold:
            self.loss_weights |= {
                _gold(name): factor * settings.hard_weight
                for name, factor in task.loss_weights.items()
            }
            self.metric_names += tuple(task.metric_names)

    @property
    def measured(self):
        return self._task

    def check(self, config) -> None:
        task, settings = self.measured, self.settings
        task.check(config)
        if not task.compared:
            raise ValueError(
                f"{type(task).__name__} has no answers in which a student could be "
                "compared with a teacher"
            )
        known = self._agreement.comparison.losses
        if settings.weight and settings.loss not in known:
            raise ValueError(
                f"answers of this kind are compared by {' or '.join(known)}, not by "
                f"{settings.loss}; pass --distill_loss={next(iter(known))}"
            )
        if settings.compares_layers:
            _check_layers(settings, config, self._teacher_config)

    def network(self, config, *, seed=0, dtype="float32") -> "Student":
        """Makes the student; and the teacher, if it is asked about every batch."""
        if self._make_teacher and self._teacher is None:
            self._teacher = self._make_teacher()
        width = None
        if self.settings.compares_layers:
            self._pairs = _pairs(self.settings, config, self._teacher_config)
            teachers = self._teacher_config.hidden_size
            if "hidden" in self._pairs and teachers != config.hidden_size:
                width = teachers
        network = self.measured.network(config, seed=seed, dtype=dtype)
        return self.student(network, width, seed=seed, dtype=dtype)

    def student(
        self, network, width: int | None, *, seed: int, dtype: str
    ) -> "Student":
        """Arguments as for `Student`."""
        return Student(network, self._pairs, width, seed=seed, dtype=dtype)

    def prepare(self, batch, seed) -> dict:
        return self.measured.prepare(batch, seed)

    def complete(self, batch) -> dict:
        """Adds the teacher's answers, if it is asked about every batch."""
        if self._teacher is None:
            return batch
        encoded = self._teacher.encode(batch, return_all=bool(self._pairs))
        answers = self.answers(self._teacher, encoded, batch)
        # A row may have several sequences.
        rows = ops.shape(batch["input_ids"])[0]
        states = {
            name: ops.reshape(x, (rows, -1, *ops.shape(x)[1:]))
            for name, x in _states(
                self._teacher.encoder, encoded, batch, self._pairs, whose=1
            ).items()
        }
        return batch | {TEACHERS + name: x for name, x in (answers | states).items()}

    def answers(self, teacher, encoded, batch) -> dict:
        """What a student is compared with, of what the teacher encoded."""
        outputs = teacher.answer(encoded, batch)
        return {name: outputs[name] for name in self.measured.compared}

    def answer_weights(self, batch):
        """float32: how much each comparison of answers counts."""
        return self.measured.comparison_weights(batch)

    def weights(self, batch) -> dict:
        known = self.measured.weights(batch) if self._has_gold else {}
        weights = {_gold(name): weight for name, weight in known.items()}
        weights["distill_loss"] = ops.sum(self.answer_weights(batch))
        of_tokens = self.token_weights(batch)
        weights |= {
            "cosine_loss": ops.sum(of_tokens),
            "hidden_loss": ops.sum(of_tokens),
            "cls_loss": ops.sum(of_tokens[:, 0]),
            "attention_loss": ops.sum(_of_token_pairs(of_tokens)),
        }
        return {name: weights[name] for name in self.loss_weights}

    def losses(self, batch, outputs) -> dict:
        known = self.measured.losses(batch, outputs) if self._has_gold else {}
        found = {_gold(name): pair for name, pair in known.items()}
        if self.settings.weight:
            found["distill_loss"] = self.of_answers(batch, outputs)
        for kind, pairs in self._pairs.items():
            found[f"{kind}_loss"] = self._of_states(kind, len(pairs), batch, outputs)
        return found

    def of_answers(self, batch, outputs) -> tuple:
        """(sum, weight) of the loss that compares answers."""
        settings = self.settings
        compare = self._agreement.comparison.losses[settings.loss]
        return self._agreement.compare(
            batch, outputs, lambda s, t: compare(s, t, settings.temperature)
        )

    def agreement(self, batch, outputs) -> dict:
        """The metrics that compare answers."""
        return self._agreement.metrics(batch, outputs)

    def metrics(self, batch, outputs) -> dict:
        found = self.agreement(batch, outputs)
        if self._has_gold:
            found |= self.measured.metrics(batch, outputs)
        return found

    def _of_states(self, kind, number, batch, outputs):
        """(sum, weight) of the loss that compares a kind of states."""
        of_tokens = self.token_weights(batch)
        compare, weights = {
            "cosine": (_one_minus_cosine, of_tokens),
            "hidden": (_mean_square, of_tokens),
            "cls": (_mean_square_of_directions, of_tokens[:, 0]),
            "attention": (_square_of_scores, _of_token_pairs(of_tokens)),
        }[kind]
        total = 0.0
        for name in (f"{kind}_{n}" for n in range(number)):
            mine = ops.cast(outputs[name], "float32")
            their = ops.cast(batch[TEACHERS + name], "float32")
            their = ops.reshape(their, (-1, *ops.shape(their)[2:]))
            total += ops.sum(compare(mine, ops.stop_gradient(their)) * weights)
        mean_over = number if kind == "cls" else 1
        return total / mean_over, ops.sum(weights)

    def token_weights(self, batch):
        """float32 [sequences, s]: 1 for the tokens of rows that count."""
        mask = ops.cast(batch["input_mask"], "float32")
        rows = self.row_weights(batch)
        mask = mask * ops.reshape(rows, (-1, *[1] * (len(mask.shape) - 1)))
        return ops.reshape(mask, (-1, ops.shape(mask)[-1]))


def _gold(name):
    """What the loss of the task is called: "loss" is the sum of all."""
    return "gold_loss" if name == "loss" else name


def _pairs(settings, student, teacher) -> Mapping[str, Pairs]:
    """The pairs of layers of each loss that compares some."""
    sizes = student.num_hidden_layers, teacher.num_hidden_layers
    found = {
        "cosine": (settings.cosine_weight, lambda *sizes: [sizes]),
        "hidden": (settings.hidden_weight, settings.hidden_pairs),
        "cls": (settings.cls_weight, settings.hidden_pairs),
        "attention": (settings.attention_weight, settings.attention_pairs),
    }
    return {kind: of(*sizes) for kind, (weight, of) in found.items() if weight}


def _check_layers(settings: Distillation, student, teacher) -> None:
    for flag in ("cosine_weight", "cls_weight"):
        sizes = student.hidden_size, teacher.hidden_size
        if getattr(settings, flag) and sizes[0] != sizes[1]:
            raise ValueError(
                f"--distill_{flag}: the student's hidden_size is {sizes[0]}, the "
                f"teacher's {sizes[1]}; they must be equal; --distill_hidden_weight "
                "compares vectors of any size"
            )
    for kind, pairs in _pairs(settings, student, teacher).items():
        if not pairs:
            raise ValueError(
                f"--distill_layers={settings.layers_flag}: gives --distill_{kind}_weight "
                "no pair of layers; write some, such as --distill_layers=1:3,2:6"
            )
    for flag in ("cls_weight", "attention_weight"):
        ways = {student.attention_direction, teacher.attention_direction} - {"both"}
        if getattr(settings, flag) and ways:
            raise ValueError(
                f"--distill_{flag}: student and teacher must see both sides of a token; "
                f"one has attention_direction {ways.pop()!r}"
            )
    if settings.attention_weight:
        heads = [getattr(c, "num_attention_heads", 0) for c in (student, teacher)]
        if heads[0] != heads[1] or not heads[0]:
            raise ValueError(
                f"--distill_attention_weight: the student has {heads[0]} attention heads, "
                f"the teacher {heads[1]}; they must be equal"
            )


def _states(
    encoder, encoded: Mapping, batch, pairs: Mapping[str, Pairs], whose: int
) -> dict:
    """What is compared besides answers: "<kind>_<number of the pair>" -> a tensor.

    Args:
        encoded: what the encoder returned, with all layers.
        whose: 0 for the student's layers, 1 for the teacher's.
    """
    if not pairs:
        return {}
    hidden = [encoded["embedding_output"], *encoded["layer_outputs"]]
    select = {
        "cosine": lambda n: hidden[n],
        "hidden": lambda n: hidden[n],
        "cls": lambda n: _vector_of_row(encoder, hidden[n], batch["input_mask"]),
        "attention": lambda n: encoder.attention_scores(n - 1, hidden[n - 1]),
    }
    return {
        f"{kind}_{number}": select[kind](pair[whose])
        for kind, chosen in pairs.items()
        for number, pair in enumerate(chosen)
    }


def _vector_of_row(encoder, hidden, input_mask):
    """[sequences, h]: that of [CLS]; the last token's if heads read that, as in XLNet."""
    if encoder.config.row_pooling == "last":
        mask = ops.reshape(input_mask, (-1, ops.shape(input_mask)[-1]))
        return layers.last_token(hidden, mask)
    return hidden[:, 0]


def _one_minus_cosine(mine, their):
    return 1.0 - ops.sum(_direction(mine) * _direction(their), axis=-1)


def _mean_square(mine, their):
    return ops.mean(ops.square(mine - their), axis=-1)


def _mean_square_of_directions(mine, their):
    return _mean_square(_direction(mine), _direction(their))


def _square_of_scores(mine, their):
    """[b, n, s, s] -> [b, s, s]"""
    return ops.mean(ops.square(mine - their), axis=1)


def _direction(x):
    """Vectors of length 1; those of 0 stay 0."""
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), -1, keepdims=True), 1e-24))


def _of_token_pairs(of_tokens):
    """[b, s] -> [b, s, s]"""
    return of_tokens[:, :, None] * of_tokens[:, None, :]


class Student(AroundNetwork):
    """A task's network whose layers can be compared with a teacher's.

    Its own variables, distillation/projection/kernel [h, width] and bias [width], are for
    training alone; the others are those of the task's network, under the same names.

    Args:
        network: of the task.
        pairs: which layers are compared by each kind of loss.
        width: that of the teacher, if the student's outputs are projected to it.
    """

    def __init__(self, network, pairs, width: int | None, *, seed: int, dtype: str):
        super().__init__(network, name="student", dtype=dtype)
        self._pairs = pairs
        self.projection = None
        if width:
            config = network.encoder.config
            initializer = next(
                layers.weight_initializers(
                    config.initializer_range, f"projection {seed}"
                )
            )
            self.projection = layers.Dense(width, initializer, dtype, name="projection")
            with layers.name_scopes(SCOPE.rstrip("/")):
                self.projection.build((None, None, config.hidden_size))
        self.built = True

    def call(self, batch, dropouts=layers.no_dropout):
        """-> the task's outputs; for a batch with a teacher's states, also its own."""
        if not any(
            name.startswith(TEACHERS + kind) for kind in self._pairs for name in batch
        ):
            return self.network(batch, dropouts=dropouts)
        encoded = self.encode(batch, dropouts)
        states = self.states(encoded, batch)
        return self.network.answer(encoded, batch, dropouts) | states

    def encode(self, batch, dropouts) -> dict:
        """What the encoder returns, with all layers if some are compared."""
        return self.network.encode(batch, dropouts, return_all=bool(self._pairs))

    def states(self, encoded, batch) -> dict:
        """What is compared of the layers, by name."""
        states = _states(self.encoder, encoded, batch, self._pairs, whose=0)
        if not self.projection:
            return states
        return {
            name: self.projection(x) if name.startswith("hidden") else x
            for name, x in states.items()
        }
