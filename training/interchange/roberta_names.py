"""RoBERTa's table of names. Ours are BERT's, with the scope roberta for its encoder.

A text classifier has a layer of its own where BERT has a pooler. Hugging Face's pooler is
for multiple choice only.
"""

from training.interchange.bert_names import BERT
from training.interchange.names import Names

_MASKED_LM = "cls/predictions/output_bias"


def _of_encoder(module: tuple[str, str, str]) -> tuple[str, str, str]:
    scope, theirs, kind = module
    return scope.replace("bert/", "roberta/"), theirs.replace("bert.", "roberta."), kind


ROBERTA = Names(
    modules=(
        *(_of_encoder(module) for module in BERT.modules if module[0][:5] == "bert/"),
        ("cls/predictions/transform/dense", "lm_head.dense", "dense"),
        ("cls/predictions/transform/LayerNorm", "lm_head.layer_norm", "norm"),
        ("cls/predictions", "lm_head", "bias"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    ),
    layer="roberta/encoder/layer_#",
    encoder=("roberta", ("embeddings", "encoder", "pooler")),
    masked_lm=_MASKED_LM,
    tied={
        "lm_head.decoder.weight": (
            "roberta/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
        "lm_head.decoder.bias": (_MASKED_LM, "its output bias"),
    },
    heads={
        "classification": "RobertaForSequenceClassification",
        "tagging": "RobertaForTokenClassification",
        "choice": "RobertaForMultipleChoice",
    },
    classes={
        ("cls/squad/output_weights",): "RobertaForQuestionAnswering",
        (_MASKED_LM,): "RobertaForMaskedLM",
        (): "RobertaModel",
    },
    causal={"RobertaForMaskedLM": "RobertaForCausalLM"},
    renamed={
        "classification": {
            "roberta.pooler.dense": "classifier.dense",
            "classifier": "classifier.out_proj",
        }
    },
)
