"""Describes a head for questions that tries several starts and ends.

Extensions have such heads as rows of `Extension.span_heads`; span_beams.py makes the
network. This module loads no Keras, so that help texts can list the names at once.
"""

import dataclasses
import types
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class SpanHead:
    """How a release decides where an answer is, and whether there is one.

    Attributes:
        names: the names of its layers: "start"; "end", which reads "end_hidden" and, if
            it has one, its normalization "end_norm"; "answer", which reads
            "answer_hidden".
        units: the width of the hidden layers; None means hidden_size.
        activation: of the hidden layers.
        start_first: the vector of the start comes before that of a possible end, and that
            of [CLS] before the mean of the possible starts; if not, after it.
        final_sep: whether the last [SEP] of a row may be a start or an end.
        impossible_windows: whether a window without the answer counts as without an
            answer, even if the text has one.
        answer_dropout: before the last layer that says whether there is an answer.
        answer_bias: whether that layer has a bias.
        glorot: draw the first weights from Glorot's distribution.
        num_starts, num_ends: starts to try for a row, and ends for each of them.
        answer_weight: of the loss of that, with the mean of the other two as 1.
    """

    names: Mapping[str, str]
    units: int | None
    activation: str
    start_first: bool
    final_sep: bool
    impossible_windows: bool
    answer_dropout: float
    answer_bias: bool
    glorot: bool
    num_starts: int
    num_ends: int
    answer_weight: float = 0.5


# zihangdai/xlnet@bbaa3a6 function_builder.py, get_qa_outputs, and google-research/albert@
# b772393 squad_utils.py, create_v2_model, which is made from it.
DEFAULT = SpanHead(
    names=types.MappingProxyType(
        {
            "start": "start_logits/dense",
            "end_hidden": "end_logits/dense_0",
            "end_norm": "end_logits/LayerNorm",
            "end": "end_logits/dense_1",
            "answer_hidden": "answer_class/dense_0",
            "answer": "answer_class/dense_1",
        }
    ),
    units=None,
    activation="tanh",
    start_first=False,
    final_sep=False,
    impossible_windows=True,
    answer_dropout=0.1,
    answer_bias=False,
    glorot=False,
    num_starts=5,
    num_ends=5,
)
