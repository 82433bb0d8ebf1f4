"""Distillation: a student learns to answer as its teacher, on top of any task."""

from collections.abc import Callable, Mapping, Sequence

from keras import ops

from errors import UserError, setting
from modeling import layers, losses
from modeling.architectures.config import EncoderConfig
from modeling.architectures.network import Network, WrappedNetwork
from modeling.distillation.distillation import Distillation
from modeling.distillation.soft_answers import COMPARED
from modeling.objectives.objective import Objective, Wrapped, row_weights

TEACHERS = "teacher_"  # what the names of its answers in a batch begin with
SCOPE = "distillation/"  # what the names of variables begin with that only training has

Pairs = Sequence[tuple[int, int]]  # of layers: (of the student, of the teacher)


class Agreement(Wrapped):
    """How far the answers to a task are from a teacher's; nothing is learned.

    A batch, or the outputs of the network, contain the teacher's as teacher_<output>.
    """

    loss_weights = {}
    summary = None

    def __init__(self, task: Objective):
        super().__init__(task)
        self._metrics = COMPARED[task.comparison.kind].metrics
        self.metric_names = tuple(self._metrics)

    def weights(self, batch) -> dict:
        return {}

    def losses(self, batch, outputs) -> dict:
        return {}

    def metrics(self, batch, outputs) -> dict:
        return {
            name: _compare(self.inner.comparison, batch, outputs, compare)
            for name, compare in self._metrics.items()
        }


def _compare(comparison, batch, outputs, compare: Callable) -> tuple:
    """(sum, weight) of what a function of `soft_answers` says about the answers."""
    own = {name: outputs[name] for name in comparison.outputs}
    kept = {
        name: batch.get(TEACHERS + name, outputs.get(TEACHERS + name))
        for name in comparison.outputs
    }
    both = zip(
        comparison.logits(batch, own), comparison.logits(batch, kept), strict=True
    )
    values = [compare(student, ops.stop_gradient(teacher)) for student, teacher in both]
    return losses.weighted_sum(sum(values) / len(values), comparison.weights(batch))


class Distilled(Wrapped):
    """A task's objective, with the teacher's answers as labels besides or instead of gold.

    A batch contains the answers as teacher_<output>, such as teacher_logits, unless a
    teacher is given; then they are among the outputs of the network in training.
    Evaluations measure the task alone.

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
        teacher: Callable[[], Network] | None = None,
        teacher_config: EncoderConfig | None = None,
    ):
        super().__init__(task)
        self.settings = settings
        self._make_teacher, self._teacher_config = teacher, teacher_config
        self._has_gold = settings.hard_weight > 0
        factors = {
            "distill_loss": settings.weight,
            "cosine_loss": settings.cosine_weight,
            "hidden_loss": settings.hidden_weight,
            "cls_loss": settings.cls_weight,
            "attention_loss": settings.attention_weight,
        }
        self.loss_weights = {name: factor for name, factor in factors.items() if factor}
        self.metric_names = tuple(self._comparison.metrics) if task.comparison else ()
        if self._has_gold:
            self.loss_weights |= {
                _gold(name): factor * settings.hard_weight
                for name, factor in task.loss_weights.items()
            }
            self.metric_names += tuple(task.metric_names)

    @property
    def _comparison(self):
        """How answers of this kind are compared."""
        return COMPARED[self.inner.comparison.kind]

    def check(self, config) -> None:
        task, settings = self.inner, self.settings
        task.check(config)
        if not task.comparison:
            raise UserError(
                f"{type(task).__name__} has no answers in which a student could be "
                "compared with a teacher"
            )
        answer_losses = self._comparison.losses
        if settings.weight and settings.loss not in answer_losses:
            raise UserError(
                f"answers of this kind are compared by {' or '.join(answer_losses)}, not "
                f"by {settings.loss}; pass "
                f"{setting('distill_loss', next(iter(answer_losses)))}"
            )
        if settings.compares_layers:
            _check_layers(settings, config, self._teacher_config)

    def network(self, config, *, seed=0, dtype="float32") -> "Student":
        """Makes the student; and the teacher, if it is asked about every batch."""
        teacher = self._make_teacher() if self._make_teacher else None
        pairs, width = {}, None
        if self.settings.compares_layers:
            pairs = _pairs(self.settings, config, self._teacher_config)
            teachers = self._teacher_config.hidden_size
            if "hidden" in pairs and teachers != config.hidden_size:
                width = teachers
        network = self.inner.network(config, seed=seed, dtype=dtype)
        return self.student(network, teacher, pairs, width, seed=seed, dtype=dtype)

    def student(self, *args, **settings) -> "Student":
        """Arguments as for `Student`."""
        return Student(*args, self.answers, **settings)

    def answers(self, teacher, encoded, batch) -> dict:
        """What a student is compared with, of what the teacher encoded."""
        outputs = teacher.answer(encoded, batch)
        return {name: outputs[name] for name in self.inner.comparison.outputs}

    def answer_weights(self, batch):
        """float32: how much each comparison of answers counts."""
        return self.inner.comparison.weights(batch)

    def weights(self, batch) -> dict:
        gold = self.inner.weights(batch) if self._has_gold else {}
        weights = {_gold(name): weight for name, weight in gold.items()}
        weights["distill_loss"] = ops.sum(self.answer_weights(batch))
        of_tokens = token_weights(batch)
        weights |= {
            "cosine_loss": ops.sum(of_tokens),
            "hidden_loss": ops.sum(of_tokens),
            "cls_loss": ops.sum(of_tokens[:, 0]),
            "attention_loss": ops.sum(_of_token_pairs(of_tokens)),
        }
        return {name: weights[name] for name in self.loss_weights}

    def losses(self, batch, outputs) -> dict:
        gold = self.inner.losses(batch, outputs) if self._has_gold else {}
        pairs = {_gold(name): pair for name, pair in gold.items()}
        if self.settings.weight:
            pairs["distill_loss"] = self.of_answers(batch, outputs)
        for kind in ("cosine", "hidden", "cls", "attention"):
            if f"{kind}_loss" in self.loss_weights:
                pairs[f"{kind}_loss"] = _of_states(kind, batch, outputs)
        return pairs

    def of_answers(self, batch, outputs) -> tuple:
        """(sum, weight) of the loss that compares answers."""
        settings = self.settings
        compare = self._comparison.losses[settings.loss]
        return _compare(
            self.inner.comparison,
            batch,
            outputs,
            lambda s, t: compare(s, t, settings.temperature),
        )

    def agreement(self, batch, outputs) -> dict:
        """The metrics that compare answers."""
        return Agreement(self.inner).metrics(batch, outputs)

    def metrics(self, batch, outputs) -> dict:
        pairs = self.agreement(batch, outputs)
        if self._has_gold:
            pairs |= self.inner.metrics(batch, outputs)
        return pairs


def token_weights(batch):
    """float32 [sequences, s]: 1 for the tokens of rows that count."""
    mask = ops.cast(batch["input_mask"], "float32")
    rows = row_weights(batch)
    mask = mask * ops.reshape(rows, (-1, *[1] * (len(mask.shape) - 1)))
    return ops.reshape(mask, (-1, ops.shape(mask)[-1]))


def _of_states(kind, batch, outputs):
    """(sum, weight) of the loss that compares a kind of states."""
    of_tokens = token_weights(batch)
    compare, weights = {
        "cosine": (_one_minus_cosine, of_tokens),
        "hidden": (_mean_square, of_tokens),
        "cls": (_mean_square_of_directions, of_tokens[:, 0]),
        "attention": (_square_of_scores, _of_token_pairs(of_tokens)),
    }[kind]
    names = [name for name in outputs if name.startswith(f"{kind}_")]
    total = 0.0
    for name in names:
        student = ops.cast(outputs[name], "float32")
        teacher = ops.cast(outputs[TEACHERS + name], "float32")
        total += ops.sum(compare(student, ops.stop_gradient(teacher)) * weights)
    mean_over = len(names) if kind == "cls" else 1
    return total / mean_over, ops.sum(weights)


def _gold(name):
    """What the loss of the task is called: "loss" is the sum of all."""
    return "gold_loss" if name == "loss" else name


def _pairs(settings, student, teacher) -> Mapping[str, Pairs]:
    """The pairs of layers of each loss that compares some."""
    sizes = student.num_hidden_layers, teacher.num_hidden_layers
    compared = {
        "cosine": (settings.cosine_weight, lambda *sizes: [sizes]),
        "hidden": (settings.hidden_weight, settings.hidden_pairs),
        "cls": (settings.cls_weight, settings.hidden_pairs),
        "attention": (settings.attention_weight, settings.attention_pairs),
    }
    return {kind: of(*sizes) for kind, (weight, of) in compared.items() if weight}


def _check_layers(settings: Distillation, student, teacher) -> None:
    for name in ("cosine_weight", "cls_weight"):
        sizes = student.hidden_size, teacher.hidden_size
        if getattr(settings, name) and sizes[0] != sizes[1]:
            raise UserError(
                f"{setting(f'distill_{name}')}: the student's hidden_size is {sizes[0]}, "
                f"the teacher's {sizes[1]}; they must be equal; "
                f"{setting('distill_hidden_weight')} compares vectors of any size"
            )
    for kind, pairs in _pairs(settings, student, teacher).items():
        if not pairs:
            raise UserError(
                f"{setting('distill_layers', settings.layers_written)}: gives "
                f"{setting(f'distill_{kind}_weight')} no pair of layers; write some, such "
                f"as {setting('distill_layers', '1:3,2:6')}"
            )
    for name in ("cls_weight", "attention_weight"):
        ways = {student.attention_direction, teacher.attention_direction} - {"both"}
        if getattr(settings, name) and ways:
            raise UserError(
                f"{setting(f'distill_{name}')}: student and teacher must see both sides "
                f"of a token; one has attention_direction {ways.pop()!r}"
            )
    if settings.attention_weight:
        heads = [getattr(c, "num_attention_heads", 0) for c in (student, teacher)]
        if heads[0] != heads[1] or not heads[0]:
            raise UserError(
                f"{setting('distill_attention_weight')}: the student has {heads[0]} "
                f"attention heads, the teacher {heads[1]}; they must be equal"
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


def _one_minus_cosine(student, teacher):
    return 1.0 - ops.sum(_direction(student) * _direction(teacher), axis=-1)


def _mean_square(student, teacher):
    return ops.mean(ops.square(student - teacher), axis=-1)


def _mean_square_of_directions(student, teacher):
    return _mean_square(_direction(student), _direction(teacher))


def _square_of_scores(student, teacher):
    """[b, n, s, s] -> [b, s, s]"""
    return ops.mean(ops.square(student - teacher), axis=1)


def _direction(x):
    """Vectors of length 1; those of 0 stay 0."""
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), -1, keepdims=True), 1e-24))


def _of_token_pairs(of_tokens):
    """[b, s] -> [b, s, s]"""
    return of_tokens[:, :, None] * of_tokens[:, None, :]


class Student(WrappedNetwork):
    """A task's network whose answers and layers can be compared with a teacher's.

    Its own variables, distillation/projection/kernel [h, width] and bias [width], are for
    training alone; the others are those of the task's network, under the same names.

    Args:
        network: of the task.
        teacher: the network to ask about every batch; None if batches contain answers.
        pairs: which layers are compared by each kind of loss.
        width: that of the teacher, if the student's outputs are projected to it.
        answers: (teacher, what it encoded, batch) -> its answers by name.
    """

    def __init__(
        self,
        network: Network,
        teacher: Network | None,
        pairs: Mapping[str, Pairs],
        width: int | None,
        answers: Callable,
        *,
        seed: int,
        dtype: str,
    ):
        super().__init__(network, name="student", dtype=dtype)
        self._pairs = pairs
        self._ask = None
        if teacher:
            # Not an attribute, because its variables would become the student's.
            self._ask = lambda batch: _ask(teacher, pairs, answers, batch)
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

    def outputs_of(self, batch, dropouts):
        """-> the task's outputs; in training, with a teacher, also what is compared."""
        if self._ask is None or dropouts is layers.no_dropout:
            return self.network(batch, dropouts=dropouts)
        encoded = self.network.encode(batch, dropouts, return_all=bool(self._pairs))
        states = _states(self.encoder, encoded, batch, self._pairs, whose=0)
        if self.projection:
            states |= {
                name: self.projection(x)
                for name, x in states.items()
                if name.startswith("hidden")
            }
        outputs = self.network.answer(encoded, batch, dropouts) | states
        answers = self._ask(batch)
        return outputs | answers | self.compare(encoded, batch, answers)

    def compare(self, encoded, batch, answers) -> dict:
        """More outputs, of what the student encoded and the teacher answered."""
        del encoded, batch, answers
        return {}


def _ask(teacher, pairs, answers, batch) -> dict:
    """The teacher's answers and states, named after the outputs."""
    encoded = teacher.encode(batch, return_all=bool(pairs))
    states = _states(teacher.encoder, encoded, batch, pairs, whose=1)
    of_teacher = answers(teacher, encoded, batch) | states
    return {TEACHERS + name: x for name, x in of_teacher.items()}
