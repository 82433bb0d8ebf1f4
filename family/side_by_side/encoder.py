"""A BERT that reads to the right and one that reads to the left, side by side.

Axes: b batch, s seq_length, h hidden_size, p its half, n heads of each.
"""

import dataclasses
import typing

import keras
from keras import ops

from modeling import bilstm, layers
from modeling.architectures.bert import BertConfig, BertEncoder
from modeling.architectures.encoder import Encoder

_DIRECTIONS = ("left_to_right", "right_to_left")


@dataclasses.dataclass(frozen=True)
class SideBySideConfig(BertConfig):
    """Sizes, rates and activation of two stacks of BERT's layers.

    BERT's paper names such a pair as what one could do in place of its own encoder: twice
    as expensive, and no layer sees both sides of a token.

    `hidden_size` is the width of the outputs of both: each stack has half of it. The number
    of layers, of heads and `intermediate_size` are those of each.

    Source: arXiv:1810.04805, section 5.1.
    """

    architecture = "side_by_side"
    capabilities = frozenset({"directions"})
    share_embedding_softmax = True

    attention_direction: typing.ClassVar[str] = "both"  # so it is not a key
    pooling: typing.ClassVar[None] = None
    hidden_size: int = 1536

    def __post_init__(self):
        super().__post_init__()
        if self.hidden_size % (2 * self.num_attention_heads):
            raise ValueError(
                f"hidden_size is {self.hidden_size}, which the {self.num_attention_heads} "
                "attention heads of each direction cannot share equally; make "
                "it a multiple of 2 * num_attention_heads"
            )

    @property
    def embedding_size(self) -> int:
        return self.hidden_size // 2

    @property
    def row_pooling(self) -> str:
        return "ends"

    def multiplications(self, seq_length: int) -> int:
        return sum(self.stack(d).multiplications(seq_length) for d in _DIRECTIONS)

    def stack(self, direction: str) -> BertConfig:
        """The config of the BERT that reads in this direction."""
        keys = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        keys |= {"hidden_size": self.embedding_size, "attention_direction": direction}
        return BertConfig(**keys)


class SideBySideEncoder(Encoder):
    """Two stacks of layers over the same embeddings; of all outputs, half is each one's.

    Its variables have BERT's names, below "side_by_side/left_to_right" and
    "side_by_side/right_to_left"; the embeddings are below the former.

    Args:
        config: the sizes.
        seed: the same seed gives the same initial weights.
        dtype: "float32" or "mixed_bfloat16"; see `BertEncoder`.
    """

    def __init__(
        self, config: SideBySideConfig, *, seed: int = 0, dtype: str = "float32"
    ):
        super().__init__(name=config.scope, dtype=dtype)
        self.config = config
        self._seed = seed
        self.build()

    def build(self, input_shape=None):
        self._stacks, embeddings = [], None
        for direction in _DIRECTIONS:
            stack = _Stack(
                self.config.stack(direction),
                seed=f"{self._seed} {direction}",
                dtype=self.dtype_policy.name,
                scope=direction,
                embeddings=embeddings,
            )
            self._stacks.append(stack)
            embeddings = stack.embeddings
        self.built = True

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def word_embeddings(self):
        return self._stacks[0].word_embeddings

    @property
    def position_embeddings(self):
        return self._stacks[0].position_embeddings

    @property
    def stages(self):
        first, second = (stack.stages for stack in self._stacks)
        above = [a + b for a, b in zip(first[1:], second[1:], strict=True)]
        return [first[0], *above]  # the embeddings are the same

    def pool(self, outputs, input_mask=None):
        """float32 [b, h]: what each direction knows once it has read the row."""
        hidden = ops.cast(outputs["sequence_output"], "float32")
        return bilstm.last_states(hidden, input_mask)

    def encode(self, inputs, dropouts=layers.no_dropout, return_all=False):
        both = [stack.encode(inputs, dropouts, return_all) for stack in self._stacks]
        for outputs in both:
            del outputs["pooled_output"]
        return keras.tree.map_structure(
            lambda *halves: ops.concatenate(halves, axis=-1), *both
        )

    def attention_scores(self, number, layer_input):
        """[b, n + n, s, s]: the heads of one direction and those of the other."""
        halves = ops.split(layer_input, 2, axis=-1)
        return ops.concatenate(
            [
                stack.attention_scores(number, half)
                for stack, half in zip(self._stacks, halves, strict=True)
            ],
            axis=1,
        )


class _Stack(BertEncoder):
    """One of the two; no pooler, because rows are read where both directions end."""

    def make_pooler(self, initializers, dtype):
        return keras.layers.Identity(dtype=dtype, name="pooler")
