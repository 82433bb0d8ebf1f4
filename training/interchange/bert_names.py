"""BERT's table of names. Text and token classifiers have no scope in the release."""

from training.interchange.names import Names

_EMBEDDINGS = ("word_embeddings", "token_type_embeddings", "position_embeddings")
_LAYER = (
    ("attention/self/query", "dense"),
    ("attention/self/key", "dense"),
    ("attention/self/value", "dense"),
    ("attention/output/dense", "dense"),
    ("attention/output/LayerNorm", "norm"),
    ("intermediate/dense", "dense"),
    ("output/dense", "dense"),
    ("output/LayerNorm", "norm"),
)
_MASKED_LM = "cls/predictions/output_bias"
_NEXT_SENTENCE = "cls/seq_relationship/output_weights"


def _alike(scope: str, kind: str) -> tuple[str, str, str]:
    """Their name is the same, with dots."""
    return scope, scope.replace("/layer_", "/layer/").replace("/", "."), kind


BERT = Names(
    modules=(
        *(_alike(f"bert/embeddings/{name}", "embedding") for name in _EMBEDDINGS),
        _alike("bert/embeddings/LayerNorm", "norm"),
        *(_alike(f"bert/encoder/layer_#/{scope}", kind) for scope, kind in _LAYER),
        _alike("bert/pooler/dense", "dense"),
        _alike("cls/predictions/transform/dense", "dense"),
        _alike("cls/predictions/transform/LayerNorm", "norm"),
        _alike("cls/predictions", "bias"),
        ("cls/seq_relationship/", "cls.seq_relationship", "head"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    ),
    layer="bert/encoder/layer_#",
    # As sentence-transformers saves an encoder.
    encoder=("bert", ("embeddings", "encoder", "pooler")),
    masked_lm=_MASKED_LM,
    tied={
        "cls.predictions.decoder.weight": (
            "bert/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
        "cls.predictions.decoder.bias": (_MASKED_LM, "its output bias"),
    },
    heads={
        "classification": "BertForSequenceClassification",
        "tagging": "BertForTokenClassification",
        "choice": "BertForMultipleChoice",
    },
    classes={
        ("cls/squad/output_weights",): "BertForQuestionAnswering",
        (_MASKED_LM, _NEXT_SENTENCE): "BertForPreTraining",
        (_MASKED_LM,): "BertForMaskedLM",
        (_NEXT_SENTENCE,): "BertForNextSentencePrediction",
        (): "BertModel",
    },
    causal={"BertForMaskedLM": "BertLMHeadModel"},
)
