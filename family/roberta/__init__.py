"""RoBERTa (arXiv:1907.11692): BERT's network with other constants, on bytes."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "roberta": (
            "family.roberta.config:RobertaConfig",
            "modeling.architectures.bert:BertEncoder",
        )
    },
    tokenizers={"byte_bpe": "family.roberta.tokenizer:RobertaKind"},
    adapters={"roberta": "family.roberta.adapter:RobertaAdapter"},
    # facebookresearch/fairseq@3d262bb optim/adam.py, class Adam.
    optimizers={
        "fairseq_adam": (
            "adam",
            "from_peak",
            {"bias_correction": True, "corrected": "quotient", "not_decayed": "(?!)"},
        )
    },
    help={
        "optimizer": "fairseq_adam: RoBERTa's; corrects Adam's bias and decays every "
        "variable.",
        "adam_beta_2": "RoBERTa uses 0.98.",
        "weight_decay": "RoBERTa's fine-tuning uses 0.1.",
        "do_lower_case": "It, --strip_accents and --split_cjk do not apply to a byte-level "
        "vocabulary (vocab.json), which keeps text as it is.",
        "vocab_file": "vocab.json or its folder is byte-level BPE, RoBERTa's.",
        "kind": "byte_bpe: FOLDER/vocab.json, with merges.txt next to it, RoBERTa's "
        "byte-level BPE.",
    },
)
