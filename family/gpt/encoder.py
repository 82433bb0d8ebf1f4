"""The encoder of the first GPT: BERT's layers, each reading what is to its left.

Axes: b batch, s seq_length, h hidden_size.
"""

import dataclasses
import typing

import keras

from modeling import layers
from modeling.architectures.bert import BertConfig, BertEncoder, Embeddings
from modeling.architectures.config import MaskedLMNames


@dataclasses.dataclass(frozen=True)
class GptConfig(BertConfig):
    """Sizes, rates and activation of one encoder; the keys of a bert_config.json.

    Every token sees itself and what precedes it. Tokens have no types, the sum of their
    embeddings is not normalized, and the vector of a row is that of its last token.
    `vocab_size` counts the rows of special tokens that fine-tuning adds.

    The defaults are the sizes of the released model. A file of ours names its
    architecture.

    `hidden_dropout_prob` is one rate for embeddings, layers and heads, where Hugging Face
    has embd_pdrop, resid_pdrop and summary_first_dropout. The release has 0.1 everywhere.

    Source: openai/finetune-transformer-lm@a69b5c4 train.py; huggingface/transformers
    v5.23.0 models/openai/configuration_openai.py.
    """

    architecture = "gpt"
    choices = BertConfig.choices | {"attention_direction": ("left_to_right",)}
    keys_without_shape = (*BertConfig.keys_without_shape, "layer_norm_eps")
    has_segments = False
    masked_lm = MaskedLMNames(transform=None, bias=None)
    truncated_weights = False

    type_vocab_size: typing.ClassVar[int] = 0  # so it is not a key
    attention_direction: str = "left_to_right"
    layer_norm_eps: float = 1e-5


class GptEncoder(BertEncoder):
    """Embeddings that are not normalized, and transformer layers; no pooler.

    A head for whole rows reads the output of the last token as it is.

    Every variable exists once the object does. The release's files have no names, so these
    are BERT's with the scope "gpt".

    In training, a dropout acts on the sums of the embeddings, as in Hugging Face's class.
    The release drops numbers of the tables instead: there, a token that occurs several
    times in a batch loses the same numbers each time, and its logits as well.

    Args:
        config: a GptConfig.
        seed, dtype, scope, embeddings: as for `BertEncoder`.
    Source: openai/finetune-transformer-lm@a69b5c4 train.py, model.
    """

    def make_embeddings(self, initializers, dtype):
        return _GptEmbeddings(self.config, initializers, dtype=dtype)

    def make_pooler(self, initializers, dtype):
        return keras.layers.Identity(dtype=dtype, name="pooler")


class _GptEmbeddings(Embeddings):
    """Token ids [b, s] -> the sums [b, s, h] of the vectors of tokens and positions."""

    def build(self, input_shape=None):
        self.add_words(self.initializers[0])
        self.add_positions(self.initializers[2])
        self.built = True

    def vectors(self, input_ids, segment_ids, input_mask, position_ids):
        """See `Embeddings`; a GPT has neither segments nor positions of padding."""
        words = layers.look_up(self.word_embeddings, input_ids)
        return words + self.positions(input_ids, position_ids)
