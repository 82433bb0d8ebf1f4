"""ELECTRA (arXiv:2003.10555): finds the tokens that a small generator replaced."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "electra": (
            "family.electra.encoder:ElectraConfig",
            "family.electra.encoder:ElectraEncoder",
        )
    },
    adapters={"electra": "family.electra.adapter:ElectraAdapter"},
    objectives={
        "replaced_tokens": (
            "family.electra.replaced_tokens:ReplacedTokens",
            "family.electra.options:ReplacedTokensOptions",
        )
    },
    forms={"replaced": "family.electra.form:REPLACED"},
    instances={"electra": "family.electra.rows:ElectraSegments"},
    inspectors={"electra": "family.electra.inspector:SegmentInspector"},
    tokenizer_classes={"ElectraTokenizer": "wordpiece"},
    span_heads={"electra": "family.electra.span_head:SPAN_HEAD"},
)
