"""ALBERT (arXiv:1909.11942): layers that share their weights, and sentence order."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "albert": (
            "family.albert.encoder:AlbertConfig",
            "family.albert.encoder:AlbertEncoder",
        )
    },
    adapters={"albert": "family.albert.adapter:AlbertAdapter"},
    objectives={
        "masked_lm_sentence_order": (
            "family.albert.sentence_order:MaskedLMSentenceOrder",
            None,
        )
    },
    instances={"sentence_order": "family.albert.rows:SentenceOrder"},
    inspectors={"sentence_order": "family.albert.inspector:SentenceOrderInspector"},
    tokenizer_classes={"AlbertTokenizer": "sentencepiece"},
    piece_models={"albert": "family.albert.tokenizer:FAMILY"},
    span_heads={"albert": "modeling.objectives.span_head:DEFAULT"},
    config_files=("albert_config.json",),
)
