"""The config of an ELECTRA: BERT's, with a table of words of its own width."""

import dataclasses

from modeling.architectures.bert_config import BertConfig, their_classes

# What a generator and its discriminator may have in common.
SHARED = ("embeddings", "none", "all")


@dataclasses.dataclass(frozen=True)
class ElectraConfig(BertConfig):
    """Sizes, rates and activation of one encoder: a discriminator or a generator.

    `embedding_size` is the width of the tables, which a projection makes hidden_size.
    `hidden_act` is the exact GELU, which the release and Hugging Face call "gelu".

    `pooler_act` is for Hugging Face's heads for whole rows, which have a dense layer with
    this activation where the release's have none. It is set where such a model is read;
    set it before fine-tuning to write one.

    The release has no config files, so a file of ours names its architecture. The defaults
    are those of its small model and of Hugging Face.

    Source: google-research/electra@8a46635 configure_pretraining.py and
    util/training_utils.py; huggingface/transformers v5.23.0
    models/electra/configuration_electra.py.
    """

    architecture = "electra"
    choices = BertConfig.choices | {"pooler_act": ("gelu_erf",)}
    own_keys = BertConfig.own_keys | {"pooler_act"}
    their_pooled_classes = frozenset(
        {"ElectraForSequenceClassification", "ElectraForMultipleChoice"}
    )
    their_fixed_values = BertConfig.their_fixed_values | {
        "hidden_act": "gelu"  # of the generator's head, whatever the key says
    }
    their_heads = {
        "ElectraForMultipleChoice": {
            "summary_type": "first",
            "summary_use_proj": True,
            "summary_activation": "gelu",
        }
    }
    masked_lm_scope = "generator_predictions"
    masked_lm_transform = ""
    glorot_heads = True

    hidden_size: int = 256
    num_attention_heads: int = 4
    intermediate_size: int = 1024
    hidden_act: str = "gelu_erf"
    type_vocab_size: int = 2
    embedding_size: int = 128
    pooler_act: str | None = None

    @classmethod
    def _translated(cls, values) -> dict:
        has_layer = not cls.their_pooled_classes.isdisjoint(their_classes(values))
        return super()._translated(values) | {
            "pooler_act": "gelu_erf" if has_layer else None
        }

    @property
    def head_dropout_prob(self) -> float:
        return 0.1  # in the release whatever hidden_dropout_prob is

    def to_hugging_face(self) -> dict:
        if self.hidden_act != "gelu_erf":
            raise ValueError(
                f"hidden_act is {self.hidden_act!r}; in Hugging Face's electra, the "
                "generator's head always has the exact GELU (gelu_erf)"
            )
        theirs = super().to_hugging_face()
        del theirs["pooler_act"]
        return theirs

    def generator(self, width: float, depth: float) -> "ElectraConfig":
        """The config of a generator for this discriminator.

        Args:
            width, depth: its share of hidden_size and of num_hidden_layers.
        Raises:
            ValueError: it would have no units or no layers, or its heads cannot share
                its units equally.
        Source: google-research/electra@8a46635 run_pretraining.py,
        get_generator_config.
        """
        hidden_size = round(self.hidden_size * width)
        return self.of_sizes(hidden_size, round(self.num_hidden_layers * depth))

    def of_sizes(
        self, hidden_size: int, num_hidden_layers: int, **more: int
    ) -> "ElectraConfig":
        """This config with other sizes, and the heads and units that go with them."""
        return dataclasses.replace(
            self,
            hidden_size=hidden_size,
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=max(1, hidden_size // 64),
            **{"intermediate_size": 4 * hidden_size} | more,
        )
