"""What a student takes from its teacher: the losses, their factors, the layers compared.

This module loads no Keras, so that help texts can list the choices at once.

Sources: Hinton et al., arXiv:1503.02531; Turc et al., arXiv:1908.08962 (soft labels); Tang
et al., arXiv:1903.12136 (logits); DistilBERT, arXiv:1910.01108 (cosines); PKD,
arXiv:1908.09355 (normalized [CLS]); TinyBERT, arXiv:1909.10351 (layers and attention).
"""

import dataclasses

from errors import UserError, setting

LOSSES = ("soft_cross_entropy", "kl", "mse")
LAYERS = ("uniform", "skip", "last")
TOKENS = ("all", "masked")  # where words are compared


@dataclasses.dataclass(frozen=True)
class Distillation:
    """The losses of a student, each a mean, multiplied by its factor and added.

    `p` and `q` are the probabilities of teacher and student, softmax(logits /
    temperature). A sum runs over classes, a mean over rows; for tags, over words; for
    spans, it is that of start and end; in pre-training, over tokens. Of several
    labels, each is a choice of its own, and the loss of a row their mean. Padding
    never counts.

    Attributes:
        loss: of the answers. soft_cross_entropy: sum of -p log(q), whose minimum is the
            entropy of p. kl: sum of p log(p / q), times temperature². mse: sum of the
            squared differences of the logits. PKD's and TinyBERT's code divide by the
            number of classes, too; multiply their factors by its inverse.
        weight, hard_weight: of the answers, and of the task's own loss.
        cosine_weight: 1 - cosine of the last layer's outputs, mean over tokens.
        hidden_weight: squared difference of the outputs of layers, mean over tokens and
            units, added over the pairs of layers. One projection makes all outputs of the
            student as wide as the teacher's, if they differ.
        cls_weight: the same for [CLS] alone, which is the first token or, if the network's
            heads read that, the last; of vectors of length 1; mean over the pairs.
        attention_weight: squared difference of the scores before the softmax, mean over
            heads and pairs of tokens, added over the pairs of layers.
        layers: which layers are compared; one of LAYERS, or pairs of a student's layer and
            a teacher's. 0 is the output of the embeddings.
    """

    loss: str = "soft_cross_entropy"
    temperature: float = 1.0
    weight: float = 1.0
    hard_weight: float = 0.0
    cosine_weight: float = 0.0
    hidden_weight: float = 0.0
    cls_weight: float = 0.0
    attention_weight: float = 0.0
    layers: str | tuple[tuple[int, int], ...] = "uniform"

    @property
    def compares_layers(self) -> bool:
        """Whether it reads more of the teacher than its answers."""
        return any(
            (
                self.cosine_weight,
                self.hidden_weight,
                self.cls_weight,
                self.attention_weight,
            )
        )

    @property
    def layers_written(self) -> str:
        """The layers as a person writes them."""
        if isinstance(self.layers, str):
            return self.layers
        return ",".join(f"{layer}:{teacher}" for layer, teacher in self.layers)

    def hidden_pairs(self, student: int, teacher: int) -> list[tuple[int, int]]:
        """The layers whose outputs are compared: (of the student, of the teacher).

        Args:
            student, teacher: their number of layers.
        Raises:
            UserError: there are no such layers.
        """
        if not isinstance(self.layers, str):
            return self._layer_pairs(student, teacher)
        if self.layers == "last":
            if student > teacher:
                raise UserError(
                    f"{setting('distill_layers', 'last')}: the student has {student} "
                    f"layers, more than the teacher's {teacher}"
                )
            return [(n, teacher - student + n) for n in range(1, student)]
        if teacher % student:
            raise UserError(
                f"{setting('distill_layers', self.layers)}: the teacher's {teacher} layers "
                f"are not a multiple of the student's {student}; write the pairs out, such "
                "as 1:3,2:6"
            )
        every = teacher // student
        if self.layers == "skip":
            return [(n, n * every) for n in range(1, student)]
        return [(n, n * every) for n in range(student + 1)]

    def attention_pairs(self, student: int, teacher: int) -> list[tuple[int, int]]:
        """The same without the embeddings, which have no attention."""
        return [pair for pair in self.hidden_pairs(student, teacher) if 0 not in pair]

    def _layer_pairs(self, student, teacher):
        for of_student, of_teacher in self.layers:
            for whose, layer, number in (
                ("student", of_student, student),
                ("teacher", of_teacher, teacher),
            ):
                if not 0 <= layer <= number:
                    pair = setting("distill_layers", f"{of_student}:{of_teacher}")
                    raise UserError(
                        f"{pair}: the {whose} has the layers 1 to {number}, and 0 for the "
                        "embeddings"
                    )
        return list(self.layers)
