"""What the tables pre-train, and how they use it: the variants that their rows name."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from modeling.architectures.config import EncoderConfig
from modeling.architectures.features import FEATURES


class Variant(NamedTuple):
    """A pre-trained encoder.

    Attributes:
        name: of its folder.
        records: flags of create_pretraining_data.py.
        pretraining: flags of run_pretraining.py.
        changes: the keys of a config file that differ, with their values; None leaves a key
            out.
        writes: whether it has a decoder, which must know the vocabulary.
    """

    name: str
    records: Mapping[str, object] = {}
    pretraining: Mapping[str, object] = {}
    changes: Callable[[EncoderConfig], Mapping[str, object]] = lambda config: {}
    writes: bool = False


class Head(NamedTuple):
    """How an encoder is used for a task: flags of the fine-tuning scripts.

    Attributes:
        name: what it adds to the name of a folder.
        flags: of the script; a value may be "{hidden_size}".
        num_layers: how many layers the encoder must have.
    """

    name: str = ""
    flags: Mapping[str, object] = {}
    num_layers: int = 1

    @property
    def is_frozen(self) -> bool:
        return "features" in self.flags


# === What is pre-trained ==============================================================

BERT = Variant("bert")
NO_NSP = Variant("no_nsp", pretraining={"objective": "masked_lm"})
LEFT_TO_RIGHT = Variant(
    "left_to_right",
    records={"masking": "dynamic"},
    pretraining={"objective": "next_token"},
    changes=lambda config: {"attention_direction": "left_to_right"},
)
DYNAMIC = Variant("dynamic_masks", records={"masking": "dynamic"})


def packed(instances):
    """Rows of one kind, without next sentences."""
    return Variant(
        instances,
        records={"masking": "dynamic", "instances": instances, "dupe_factor": 1},
        pretraining={"objective": "masked_lm"},
    )


def electra(name, objective):
    """Any objective, with ELECTRA's rows and encoder."""
    return Variant(
        name,
        records={"masking": "dynamic", "instances": "electra", "dupe_factor": 1},
        pretraining={"objective": objective},
        changes=lambda config: {
            "architecture": "electra",
            "embedding_size": config.embedding_size,
        },
    )


def masked(mask, keep, random):
    """The variant with these percentages; the release's is BERT itself."""
    if (mask, keep, random) == (80, 10, 10):
        return BERT
    shares = {"mask_share": mask, "keep_share": keep, "random_share": random}
    return Variant(
        f"masks_{mask}_{keep}_{random}",
        records={name: percent / 100 for name, percent in shares.items()},
    )


def sized(name: str, layers: float, wider: float = 1.0, heads: float = 1.0):
    """A size relative to a config's.

    Args:
        layers: factor of the number of layers.
        wider: factor of the number of heads, which keep their size.
        heads: factor of the number of heads, which share the same width.
    """

    def changes(config):
        number = math.ceil(config.num_attention_heads * wider)
        width = config.hidden_size // config.num_attention_heads * number
        return {
            "num_hidden_layers": max(round(config.num_hidden_layers * layers), 1),
            "num_attention_heads": max(round(number * heads), 1),
            "hidden_size": width,
            "intermediate_size": config.intermediate_size * width // config.hidden_size,
        }

    return Variant(name, changes=changes)


def _of_architecture(architecture, objective, changes=lambda config: {}, records=None):
    """An architecture with its own objective; by default, on rows without masks."""
    return Variant(
        f"family_{architecture}",
        records=records or {"masking": "dynamic"},
        pretraining={"objective": objective},
        changes=lambda config: {"architecture": architecture} | changes(config),
    )


def _narrow_table(config):
    """A table of words that is a quarter as wide as the encoder."""
    return {"embedding_size": max(config.hidden_size // 4, 1)}


ALBERT = _of_architecture(
    "albert",
    "masked_lm_sentence_order",
    _narrow_table,
    {"instances": "sentence_order"},
)
ELECTRA = _of_architecture("electra", "replaced_tokens", _narrow_table)


def _of_t5(config):
    """Without the keys that it does not have, and with rows for its sentinels."""
    left_out = ("type_vocab_size", "max_position_embeddings", "initializer_range")
    left_out += ("attention_probs_dropout_prob", "hidden_act")
    return dict.fromkeys(left_out) | {
        "attention_head_size": config.hidden_size // config.num_attention_heads,
        "vocab_size": config.vocab_size + 100,
    }


T5 = _of_architecture("t5", "span_corruption", _of_t5)._replace(writes=True)
GPT = _of_architecture("gpt", "next_token", lambda config: {"type_vocab_size": None})


def _of_xlnet(config):
    """The same sizes under the names of its release."""
    sizes = {
        "vocab_size": "n_token",
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "d_inner",
    }
    return {
        **dict.fromkeys(sizes),
        **dict.fromkeys(("hidden_act", "max_position_embeddings", "type_vocab_size")),
        **{key: getattr(config, name) for name, key in sizes.items()},
        "d_head": config.hidden_size // config.num_attention_heads,
        "ff_activation": "gelu",
        "untie_r": True,
    }


XLNET = _of_architecture("xlnet", "permuted", _of_xlnet)


def _lstms(config):
    """As in the release, two layers, and per direction four cells for each output."""
    width = config.hidden_size + config.hidden_size % 2
    replaced = dict.fromkeys(
        (
            *("num_attention_heads", "intermediate_size", "hidden_act"),
            *("attention_probs_dropout_prob", "max_position_embeddings"),
            *("type_vocab_size", "initializer_range"),
        )
    )
    return replaced | {
        "hidden_size": width,
        "num_hidden_layers": 2,
        "lstm_size": 4 * width,
    }


ELMO = _of_architecture("elmo", "bidirectional_lm", _lstms)

# === How it is used ===================================================================

BILSTM = Head("bilstm", {"lstm_layers": 2, "lstm_size": "{hidden_size}"})


def features(which):
    """A frozen encoder below a BiLSTM; see modeling/architectures/features.py."""
    flags = {"features": which, "lstm_size": "{hidden_size}"}
    return Head(f"features_{which}", flags, FEATURES[which])
