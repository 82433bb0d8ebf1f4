"""What the tables pre-train, and how they use it: the variants that their rows name."""

import math
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from files import json_files
from modeling.architectures.config import EncoderConfig
from modeling.architectures.features import FEATURES

_CONFIGS = os.path.join(os.path.dirname(__file__), "configs")


class Variant(NamedTuple):
    """A pre-trained encoder.

    Attributes:
        name: of its folder.
        records: flags of create_pretraining_data.py.
        pretraining: flags of run_pretraining.py; None: its weights stay random.
        changes: the keys of a config file that differ, with their values; None leaves a key
            out.
        writes: whether it has a decoder, which must know the vocabulary.
    """

    name: str
    records: Mapping[str, object] = {}
    pretraining: Mapping[str, object] | None = {}
    changes: Callable[[EncoderConfig], Mapping[str, object]] = lambda config: {}
    writes: bool = False

    @property
    def is_pretrained(self) -> bool:
        return self.pretraining is not None


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

_UNMASKED = {"masking": "dynamic"}  # records without masks, which the training draws
BERT = Variant("bert")
NO_NSP = Variant("no_nsp", pretraining={"objective": "masked_lm"})
LEFT_TO_RIGHT = Variant(
    "left_to_right",
    _UNMASKED,
    {"objective": "next_token"},
    lambda config: {"attention_direction": "left_to_right"},
)
DYNAMIC = Variant("dynamic_masks", _UNMASKED)
NOT_PRETRAINED = Variant("not_pretrained", pretraining=None)


def with_instances(instances):
    """Rows of one kind, without next sentences."""
    records = _UNMASKED | {"instances": instances, "dupe_factor": 1}
    return Variant(instances, records, {"objective": "masked_lm"})


def electra(name, objective):
    """Any objective, with ELECTRA's rows and encoder."""
    return with_instances("electra")._replace(
        name=name,
        pretraining={"objective": objective},
        changes=lambda config: {
            "architecture": "electra",
            "embedding_size": config.embedding_size,
        },
    )


def with_mask_shares(mask, keep, random):
    """The variant with these percentages; the release's is BERT itself."""
    if (mask, keep, random) == (80, 10, 10):
        return BERT
    shares = {"mask_share": mask, "keep_share": keep, "random_share": random}
    return Variant(
        f"masks_{mask}_{keep}_{random}",
        records={name: percent / 100 for name, percent in shares.items()},
    )


def with_masking_rate(percent):
    """Without next sentences, with this share of the tokens to predict."""
    if percent == 15:
        return NO_NSP
    return NO_NSP._replace(
        name=f"masking_rate_{percent}", records={"masked_lm_prob": percent / 100}
    )


def with_size(name: str, layers: float, wider: float = 1.0, heads: float = 1.0):
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


def _of_architecture(architecture, objective, records=_UNMASKED):
    """An architecture with its own objective.

    configs/ has the keys by which its config differs from BERT's; a value in braces is one
    of `_sizes`.
    """

    def changes(config):
        keys = json_files.read(os.path.join(_CONFIGS, f"{architecture}.json"))
        sizes = {f"{{{name}}}": size for name, size in _sizes(config).items()}
        return {key: sizes.get(value, value) for key, value in keys.items()}

    pretraining = {"objective": objective}
    return Variant(f"family_{architecture}", records, pretraining, changes)


def _sizes(config) -> dict[str, int]:
    width = config.hidden_size
    even_width = width + width % 2  # half of an LSTM's output for each direction
    return {
        "vocab_size": config.vocab_size,
        "vocab_size_with_sentinels": config.vocab_size + 100,
        "hidden_size": width,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        # A gated layer has three matrices where BERT's has two.
        "gated_size": max(round(config.intermediate_size * 2 / 3), 1),
        "head_size": width // config.num_attention_heads,
        "quarter_width": max(width // 4, 1),
        "even_width": even_width,
        "two_widths": 2 * width,
        "four_widths": 4 * even_width,
    }


ALBERT = _of_architecture(
    "albert", "masked_lm_sentence_order", {"instances": "sentence_order"}
)
ELECTRA = _of_architecture("electra", "replaced_tokens")
GPT = _of_architecture("gpt", "next_token")
T5 = _of_architecture("t5", "span_corruption")._replace(writes=True)
XLNET = _of_architecture("xlnet", "permuted")
FULL_SENTENCES = with_instances("full_sentences")
MODERN_BERT = _of_architecture("modern_bert", "masked_lm", FULL_SENTENCES.records)
ELMO = _of_architecture("elmo", "bidirectional_lm")
SIDE_BY_SIDE = _of_architecture("side_by_side", "bidirectional_lm")

# === How it is used ===================================================================

BILSTM = Head("bilstm", {"lstm_layers": 2, "lstm_size": "{hidden_size}"})


def features(which):
    """A frozen encoder below a BiLSTM; see modeling/architectures/features.py."""
    flags = {"features": which, "lstm_size": "{hidden_size}"}
    return Head(f"features_{which}", flags, FEATURES[which])
