"""ALBERT's table of names. Text and token classifiers have no scope in the release.

The numbers of a layer are those of its group and of its place in the group.
"""

from training.interchange.names import Names

_EMBEDDINGS = ("word_embeddings", "token_type_embeddings", "position_embeddings")
_LAYER = (
    ("attention_1/self/query", "attention.query", "dense"),
    ("attention_1/self/key", "attention.key", "dense"),
    ("attention_1/self/value", "attention.value", "dense"),
    ("attention_1/output/dense", "attention.dense", "dense"),
    ("LayerNorm", "attention.LayerNorm", "norm"),
    ("ffn_1/intermediate/dense", "ffn", "dense"),
    ("ffn_1/intermediate/output/dense", "ffn_output", "dense"),
    ("LayerNorm_1", "full_layer_layer_norm", "norm"),
)
_MASKED_LM = "cls/predictions/output_bias"
_SENTENCE_ORDER = "cls/seq_relationship/output_weights"
_PROJECTION = "encoder/embedding_hidden_mapping_in"
_THEIR_PROJECTION = f"albert.{_PROJECTION.replace('/', '.')}"
_SHARED = "bert/encoder/transformer/group_#/inner_group_#"
_THEIR_SHARED = "albert.encoder.albert_layer_groups.#.albert_layers.#"

ALBERT = Names(
    modules=(
        *(
            (f"bert/embeddings/{name}", f"albert.embeddings.{name}", "embedding")
            for name in _EMBEDDINGS
        ),
        ("bert/embeddings/LayerNorm", "albert.embeddings.LayerNorm", "norm"),
        (f"bert/{_PROJECTION}", _THEIR_PROJECTION, "dense"),
        *(
            (f"{_SHARED}/{scope}", f"{_THEIR_SHARED}.{module}", kind)
            for scope, module, kind in _LAYER
        ),
        ("bert/pooler/dense", "albert.pooler", "dense"),
        ("cls/predictions/transform/dense", "predictions.dense", "dense"),
        ("cls/predictions/transform/LayerNorm", "predictions.LayerNorm", "norm"),
        ("cls/predictions", "predictions", "bias"),
        ("cls/seq_relationship/", "sop_classifier.classifier", "head"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    ),
    encoder=("albert", ("embeddings", "encoder", "pooler")),
    masked_lm=_MASKED_LM,
    tied={
        "predictions.decoder.weight": (
            "bert/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
        "predictions.decoder.bias": (_MASKED_LM, "its output bias"),
    },
    heads={
        "classification": "AlbertForSequenceClassification",
        "tagging": "AlbertForTokenClassification",
        "choice": "AlbertForMultipleChoice",
    },
    classes={
        ("cls/squad/output_weights",): "AlbertForQuestionAnswering",
        (_MASKED_LM, _SENTENCE_ORDER): "AlbertForPreTraining",
        (_MASKED_LM,): "AlbertForMaskedLM",
        (): "AlbertModel",
    },
    causal={},
    identity=_THEIR_PROJECTION,
)
