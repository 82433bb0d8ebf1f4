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
    optimizers={"adafactor_constant": ("adafactor", "constant")},
    help={
        "objective": "span_corruption: T5's; a decoder writes the spans that the "
        "encoder's text lacks; needs --vocab_file.",
        "optimizer": "adafactor, adafactor_constant: T5's for pre-training and "
        "fine-tuning.",
        "do_lower_case": "A SentencePiece model with T5's special tokens keeps text as it "
        "is.",
        "special_tokens": "t5 keeps text as it is; when a model is read, its 100 tokens "
        "<extra_id_N> are added.",
    },
)
