"""ModernBERT (arXiv:2412.13663): rotary positions, local attention, long rows."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "modern_bert": (
            "family.modern_bert.config:ModernBertConfig",
            "family.modern_bert.encoder:ModernBertEncoder",
        )
    },
    tokenizers={"modern_bpe": "family.modern_bert.tokenizer:ModernBertKind"},
    adapters={"modern_bert": "family.modern_bert.adapter:ModernBertAdapter"},
    help={
        "kind": "modern_bpe: FOLDER/vocab.json, with merges.txt next to it, ModernBERT's "
        "byte-level BPE.",
        "do_lower_case": "Nor do they apply to ModernBERT's vocabulary.",
    },
)
