"""RoBERTa in Hugging Face's layout. Our names are BERT's, with the scope roberta.

A text classifier has a layer of its own where BERT has a pooler. Hugging Face's pooler is
for multiple choice only.
"""

from training.interchange.adapter import usual_heads
from training.interchange.bert_adapter import BertAdapter, encoder_modules

_MASKED_LM = "cls/predictions/output_bias"


class RobertaAdapter(BertAdapter):
    """Their config.json counts the rows of the table of positions.

    There, an absent key has the default of their class and not the released value. Their
    masked-LM head has the exact GELU whatever hidden_act is.

    Source: huggingface/transformers v5.23.0 models/roberta/configuration_roberta.py.
    """

    architecture = model_type = "roberta"
    modules = (
        *encoder_modules("roberta"),
        ("cls/predictions/transform/dense", "lm_head.dense", "dense"),
        ("cls/predictions/transform/LayerNorm", "lm_head.layer_norm", "norm"),
        ("cls/predictions", "lm_head", "bias"),
        ("cls/squad/", "qa_outputs", "head"),
        ("", "classifier", "head"),
    )
    layer = "roberta/encoder/layer_#"
    encoder = ("roberta", ("embeddings", "encoder", "pooler"))
    tied = {
        "lm_head.decoder.weight": (
            "roberta/embeddings/word_embeddings",
            "the table of word embeddings",
        ),
        "lm_head.decoder.bias": (_MASKED_LM, "its output bias"),
    }
    heads = usual_heads("Roberta")
    classes = {
        ("cls/squad/output_weights",): "RobertaForQuestionAnswering",
        (_MASKED_LM,): "RobertaForMaskedLM",
        (): "RobertaModel",
    }
    causal = {"RobertaForMaskedLM": "RobertaForCausalLM"}
    pooled = frozenset({"RobertaForSequenceClassification", "RobertaForMultipleChoice"})
    masked_lm_act = "gelu_erf"
    renamed = {
        "classification": {
            "roberta.pooler.dense": "classifier.dense",
            "classifier": "classifier.out_proj",
        }
    }
    defaults = BertAdapter.defaults | {
        "vocab_size": 50265,
        "max_position_embeddings": 512,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 1,
    }
    fixed_values = {
        key: value
        for key, value in BertAdapter.fixed_values.items()
        if key != "layer_norm_eps"
    }

    def translate(self, values) -> dict:
        values = super().translate(values)
        rows, padding = values["max_position_embeddings"], values["pad_token_id"]
        if isinstance(rows, int) and isinstance(padding, int):  # else refused later
            values["max_position_embeddings"] = rows - padding - 1
        if values["hidden_act"] != self.masked_lm_act:
            values["masked_lm_act"] = self.masked_lm_act
        return values

    def to_hugging_face(self, config) -> dict:
        rows = config.max_position_embeddings + config.position_offset
        return super().to_hugging_face(config) | {"max_position_embeddings": rows}
