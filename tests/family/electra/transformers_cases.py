"""ELECTRAs that are written for transformers, and a head of theirs that is read."""

from family.electra.encoder import ElectraConfig
from family.electra.replaced_tokens import DiscriminatorModel
from tests.training.interchange.test_transformers import TINY

WRITTEN = {
    "electra": (
        ElectraConfig(**TINY, embedding_size=8, pooler_act="gelu_erf"),
        ("classification", "choice", "tagging", "span"),
    )
}
HEADS = {
    "ElectraForPreTraining": (
        lambda config, _: DiscriminatorModel(config),
        {"logits": "discriminator_logits"},
    )
}
