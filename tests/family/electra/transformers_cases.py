"""A head of transformers' ELECTRAs that is read."""

from family.electra.replaced_tokens import DiscriminatorModel

HEADS = {
    "ElectraForPreTraining": (
        lambda config, _: DiscriminatorModel(config),
        {"logits": "discriminator_logits"},
    )
}
