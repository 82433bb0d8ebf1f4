"""The flags of distillation."""

import dataclasses
import functools

import options
from errors import UserError
from modeling.distillation.distillation import LAYERS, LOSSES, TOKENS, Distillation

_WEIGHTS = (
    "distill_weight",
    "hard_weight",
    "distill_cosine_weight",
    "distill_hidden_weight",
    "distill_cls_weight",
    "distill_attention_weight",
)


_field = functools.partial(
    options.field, only_for={"distill_from": options.GIVEN}, identity=True
)
_weight = functools.partial(_field, at_least=0)


@dataclasses.dataclass(frozen=True)
class DistillationOptions(options.Group):
    """Distillation. Which teacher a student has, and what it takes from it."""

    distill_from: str | None = options.field(
        None,
        help="With --do_train, the teacher for distillation: the output_dir, export or "
        "checkpoint of a model of the same task.",
    )
    distill_loss: str | None = _field(
        None,
        choices=LOSSES,
        help="How answers are compared with the teacher's. By default, soft_cross_entropy; "
        "for numbers, mse; in pre-training, kl.",
    )
    distill_temperature: float = _field(
        1.0,
        help="Divides all logits in soft_cross_entropy and kl; kl is then multiplied by "
        "its square.",
        above=0,
    )
    distill_weight: float = _weight(
        1.0, help="Factor of --distill_loss, the loss of answers."
    )
    hard_weight: float = _weight(
        0.0,
        help="Factor of the task's or the objective's own loss, which needs labels.",
    )
    distill_cosine_weight: float = _weight(
        0.0,
        help="Factor of DistilBERT's loss: 1 - cosine of the last layer's outputs. The "
        "teacher is asked about every batch.",
    )
    distill_hidden_weight: float = _weight(
        0.0,
        help="Factor of TinyBERT's loss of layers: mean squared difference of their "
        "outputs. The teacher is asked about every batch; if it is wider or narrower than "
        "the student, a projection is learned.",
    )
    distill_cls_weight: float = _weight(
        0.0,
        help="Factor of PKD's loss of layers: mean squared difference of their normalized "
        "[CLS] vectors. The teacher is asked about every batch.",
    )
    distill_attention_weight: float = _weight(
        0.0,
        help="Factor of TinyBERT's loss of attention: mean squared difference of the "
        "scores before the softmax. The teacher is asked about every batch.",
    )
    distill_layers: list[str] = _field(
        ["uniform"],
        help="Which layers the losses of layers and attention compare: "
        f"{', '.join(LAYERS)}, or pairs such as 1:3,2:6 (of the student, of the teacher; "
        "0 is the embeddings). uniform: evenly, with the embeddings. skip: evenly, without "
        "the last. last: the teacher's layers just before its last.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.distill_from and not any(getattr(self, name) for name in _WEIGHTS):
            raise UserError("all weights of the losses are 0; pass --distill_weight=1")
        self._check_effects()

    def _check_effects(self):
        """Refuses flags that would have no effect, although they seem to."""
        compared = ("hidden", "cls", "attention")
        if self._layers() != LAYERS[0] and not any(
            getattr(self, f"distill_{name}_weight") for name in compared
        ):
            raise UserError(
                "--distill_layers needs --distill_hidden_weight, --distill_cls_weight or "
                "--distill_attention_weight"
            )
        of_answers = self.distill_loss or self.distill_temperature != 1.0
        if self.distill_from and not self.distill_weight and of_answers:
            raise UserError(
                "--distill_loss and --distill_temperature have no effect with "
                "--distill_weight=0; remove them"
            )

    def _layers(self):
        chosen = self.distill_layers
        if len(chosen) == 1 and chosen[0] in LAYERS:
            return chosen[0]
        try:
            if pairs := tuple(_pair(item) for item in chosen):
                return pairs
            raise ValueError
        except ValueError:
            raise UserError(
                f"--distill_layers={','.join(chosen)}: must be one of {', '.join(LAYERS)}, "
                "or pairs of layers such as 1:3,2:6"
            ) from None

    @property
    def distillation_settings(self) -> dict:
        """What identifies a run of what a student learns, without its teacher."""
        names = {field.name for field in dataclasses.fields(WordDistillationOptions)}
        own = options.identity(self).items()
        return {name: value for name, value in own if name in names}

    def distillation(self, default_loss: str) -> Distillation:
        """The losses.

        Args:
            default_loss: if --distill_loss is not given.
        """
        return Distillation(
            loss=self.distill_loss or default_loss,
            temperature=self.distill_temperature,
            weight=self.distill_weight,
            hard_weight=self.hard_weight,
            cosine_weight=self.distill_cosine_weight,
            hidden_weight=self.distill_hidden_weight,
            cls_weight=self.distill_cls_weight,
            attention_weight=self.distill_attention_weight,
            layers=self._layers(),
        )


@dataclasses.dataclass(frozen=True)
class WordDistillationOptions(DistillationOptions):
    """Distillation. In pre-training, the teacher is asked about every batch."""

    distill_from: str | None = options.override(
        DistillationOptions,
        "distill_from",
        None,
        help="The teacher, for distillation: a model with a masked-LM head and the same "
        "vocabulary. The output_dir of a pre-training, a checkpoint, a Hugging Face model, "
        "or hf://organization/name[@revision].",
    )
    distill_tokens: str = _field(
        "all",
        choices=TOKENS,
        help="Where the words that student and teacher expect are compared: at all tokens, "
        "as in DistilBERT, or at the masked ones, which is faster.",
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.distill_weight and self.distill_tokens != TOKENS[0]:
            raise UserError(
                "--distill_tokens has no effect with --distill_weight=0; remove it"
            )


def _pair(item):
    student, teacher = item.split(":")
    if not (student.isdecimal() and teacher.isdecimal()):
        raise ValueError
    return int(student), int(teacher)
