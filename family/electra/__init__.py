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
    optimizers={"electra_adam": ("adam", "times_warmup")},
    help={
        "objective": "replaced_tokens: ELECTRA's; a generator fills masks, and a "
        "discriminator, the encoder to use later, finds the tokens that are not the "
        "original ones.",
        "instances": "electra: sentences of a document in one segment or two, as in "
        "ELECTRA.",
        "optimizer": "electra_adam: ELECTRA's; BERT's with another schedule.",
        "layerwise_lr_decay": "ELECTRA uses 0.8, its large model 0.9.",
        "span_head": "electra: ELECTRA's.",
        "network": "An ELECTRA's has generator and discriminator.",
    },
)
