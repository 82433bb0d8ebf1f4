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
)
