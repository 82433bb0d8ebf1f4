"""RoBERTa (arXiv:1907.11692): BERT's network with other constants, on bytes."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "roberta": (
            "family.roberta.config:RobertaConfig",
            "modeling.architectures.bert:BertEncoder",
        )
    },
    adapters={"roberta": "family.roberta.adapter:RobertaAdapter"},
)
