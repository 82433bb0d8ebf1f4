"""T5 (arXiv:1910.10683): every task as text, written by a decoder."""

from extensions import Extension

EXTENSION = Extension(
    architectures={"t5": ("family.t5.config:T5Config", "family.t5.encoder:T5Encoder")},
    adapters={"t5": "family.t5.adapter:T5Adapter"},
    objectives={
        "span_corruption": (
            "family.t5.span_corruption:SpanCorruption",
            "family.t5.options:SpanCorruptionOptions",
        )
    },
    forms={"text": "family.t5.form:TEXT"},
    tokenizer_classes={"T5Tokenizer": "sentencepiece"},
    piece_models={"t5": "family.t5.tokenizer:FAMILY"},
)
