"""XLNet (arXiv:1906.08237): spans in a random order, with memory of the rows before."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "xlnet": (
            "family.xlnet.encoder:XlnetConfig",
            "family.xlnet.encoder:XlnetEncoder",
        )
    },
    adapters={"xlnet": "family.xlnet.adapter:XlnetAdapter"},
    objectives={
        "permuted": (
            "family.xlnet.permuted:Permuted",
            "family.xlnet.options:PermutedOptions",
        )
    },
    instances={"contiguous": "family.xlnet.rows:Contiguous"},
    inspectors={"contiguous": "family.xlnet.inspector:ContiguousInspector"},
    row_options=("family.xlnet.rows:ContiguousOptions",),
    tokenizer_classes={"XLNetTokenizer": "sentencepiece"},
    piece_models={"xlnet": "family.xlnet.tokenizer:FAMILY"},
    span_heads={"xlnet": "modeling.objectives.span_head:DEFAULT"},
    config_files=("xlnet_config.json",),
)
