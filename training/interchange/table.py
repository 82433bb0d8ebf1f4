"""Lists the layouts of Hugging Face's models by architecture.

A new one is a file next to this one and a row in NAMES. Nothing here loads TensorFlow.
"""

from collections.abc import Collection

from training.interchange.albert_names import ALBERT
from training.interchange.bert_names import BERT
from training.interchange.electra_names import ELECTRA
from training.interchange.gpt_names import GPT
from training.interchange.roberta_names import ROBERTA
from training.interchange.t5_names import T5
from training.interchange.xlnet_names import XLNET

# By the architecture of a config.
NAMES = {
    "bert": BERT,
    "albert": ALBERT,
    "electra": ELECTRA,
    "gpt": GPT,
    "roberta": ROBERTA,
    "t5": T5,
    "xlnet": XLNET,
}
# What a head without a name of its own may be for.
HEADS = tuple(dict.fromkeys(head for names in NAMES.values() for head in names.heads))
# What a checkpoint of several networks may contain.
NETWORKS = tuple(dict.fromkeys(n for names in NAMES.values() for n in names.networks))
WEIGHTS = "model.safetensors"


def released_names(names: Collection[str]) -> dict[str, tuple[str, bool]]:
    """Our names for what a checkpoint in the release's layout contains.

    Args:
        names: those in the checkpoint.
    Returns:
        our name -> the one in the checkpoint, and whether that tensor is transposed.
    """
    ours = {}
    for row in NAMES.values():
        ours |= row.own_heads(names) if row.own_heads else {}
    pairs = ((name, *ours.get(name, (name, False))) for name in names)
    return {own: (name, transposed) for name, own, transposed in pairs}
