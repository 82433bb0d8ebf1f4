"""The config of a RoBERTa: BERT's network with other constants."""

import dataclasses

from modeling.architectures.bert import ACTIVATIONS, BertConfig


@dataclasses.dataclass(frozen=True)
class RobertaConfig(BertConfig):
    """Sizes, rates and activation of one encoder, for the network of `BertEncoder`.

    It has no segments: every token is of type 0, whose row is not trained. (fairseq has no
    such row, Hugging Face a table of zeros.)

    `max_position_embeddings` counts tokens, as in BERT: 512 in the released models. Their
    table of positions has 514 rows, because the first token reads the row behind that of
    `pad_token_id`, the id of padding in the vocabulary. That row is for padding, and is not
    trained; those before it are not used. The table is kept whole, so that conversion
    changes no number in either direction.

    Hugging Face's config.json counts rows. There, an absent key has the default of their
    class and not the released value: layer_norm_eps is 1e-12, type_vocab_size 2, and
    max_position_embeddings 512 rows.

    `masked_lm_act` is the activation in the masked-LM head, by default `hidden_act`, as in
    fairseq. Hugging Face's head has the exact GELU whatever hidden_act is, so it is set
    where such a model is read.

    Source: arXiv:1907.11692; facebookresearch/fairseq@3d262bb models/roberta/model.py;
    huggingface/transformers v5.23.0 models/roberta/configuration_roberta.py.
    """

    architecture = "roberta"
    choices = BertConfig.choices | {"masked_lm_act": ACTIVATIONS}
    own_keys = BertConfig.own_keys | {"masked_lm_act"}
    keys_without_shape = (
        *BertConfig.keys_without_shape,
        "layer_norm_eps",
        "pad_token_id",
    )
    has_segments = False
    hidden_act: str = "gelu_erf"
    type_vocab_size: int = 1
    layer_norm_eps: float = 1e-5
    pad_token_id: int = 1
    masked_lm_act: str | None = None

    @property
    def position_offset(self) -> int:
        return self.pad_token_id + 1

    @property
    def padding_position(self) -> int:
        return self.pad_token_id

    @property
    def masked_lm_activation(self) -> str:
        return self.masked_lm_act or self.hidden_act
