"""XLNet (arXiv:1906.08237): spans in a random order, with memory of the rows before."""

from extensions import Extension

# zihangdai/xlnet@bbaa3a6 model_utils.py, get_train_op: two optimizers; the one with
# weight decay is BERT's that also decays the biases of queries, r_w_bias and others.
_ADAM = {
    "corrected": "quotient",
    "not_decayed": "LayerNorm|layer_norm|(?<!r_[wrs]_)bias",
}
_UNDECAYED = {"bias_correction": True, "epsilon": 1e-8}
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
    optimizers={
        "xlnet_adam": ("adam", "to_ratio", _ADAM, _UNDECAYED),
        "xlnet_adam_cosine": ("adam", "cosine_to_ratio", _ADAM, _UNDECAYED),
    },
    help={
        "objective": "permuted: XLNet's; spans of tokens, predicted in a random order.",
        "instances": "contiguous: rows that continue those of the batch before, for a "
        "model with memory, as in XLNet.",
        "optimizer": "xlnet_adam, xlnet_adam_cosine: XLNet's; Adam if --weight_decay=0, "
        "otherwise BERT's that also decays the biases of queries.",
        "do_lower_case": "With a SentencePiece model that has XLNet's special tokens, it "
        "is then false.",
        "min_lr_ratio": "XLNet's pre-training uses 0.001.",
        "span_head": "xlnet: XLNet's for SQuAD 2.0.",
    },
)
