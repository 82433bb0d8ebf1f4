"""ModernBERT (arXiv:2412.13663): rotary positions, local attention, long rows."""

from extensions import Extension

# Those of Base, whose epsilon is StableAdamW's; its weight decay, 1e-5, is not times the
# peak of the rate, 8e-4, but ours is. arXiv:2412.13663, section 2.2, for the schedule.
# AnswerDotAI/ModernBERT@94c82d1 yamls/modernbert/modernbert-base-pretrain.yaml
_STABLE_ADAMW = {"adam_beta_2": 0.98, "weight_decay": 1e-5 / 8e-4}
_UNDECAYED = {"weight_decay": 0.0}
EXTENSION = Extension(
    architectures={
        "modern_bert": (
            "family.modern_bert.config:ModernBertConfig",
            "family.modern_bert.encoder:ModernBertEncoder",
        )
    },
    tokenizers={"modern_bpe": "family.modern_bert.tokenizer:ModernBertKind"},
    adapters={"modern_bert": "family.modern_bert.adapter:ModernBertAdapter"},
    optimizers={"modern_bert": ("stable_adamw", "wsd_sqrt", _STABLE_ADAMW, _UNDECAYED)},
    help={
        "optimizer": "modern_bert: ModernBERT's; stable_adamw with the betas and the "
        "weight decay of its Base.",
        "kind": "modern_bpe: FOLDER/vocab.json, with merges.txt next to it, ModernBERT's "
        "byte-level BPE.",
        "do_lower_case": "Nor do they apply to ModernBERT's vocabulary.",
    },
)
