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
    help={
        "objective": "masked_lm_sentence_order: ALBERT's; masked words, and whether two "
        "spans are swapped; needs records of create_pretraining_data.py "
        "--instances=sentence_order.",
        "instances": "sentence_order: two consecutive spans and whether they are swapped, "
        "as in ALBERT.",
        "ngram": "ALBERT uses 3.",
        "span_head": "albert: ALBERT's for SQuAD 2.0.",
    },
)
