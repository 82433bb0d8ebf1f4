"""ALBERTs of transformers."""

import tests
from modeling.objectives import sentence_pairs
from tests.training.interchange.transformers_rows import (
    ODD_OF_BERT,
    Theirs,
    Tokenizer,
    classes,
    draw_bert,
)


def _draw(drawn):
    values = draw_bert(drawn)
    layers = values["num_hidden_layers"]
    width = drawn.choice((values["hidden_size"], drawn.randrange(3, 40)))
    return values | {
        "embedding_size": width,
        "num_hidden_groups": drawn.randrange(1, layers + 1),
        "inner_group_num": drawn.randrange(1, 4),
        "classifier_dropout_prob": drawn.choice((0.0, 0.1)),
    }


ROWS = {
    "albert": Theirs(
        classes("Albert", "Model", "ForMaskedLM", "ForPreTraining"),
        _draw,
        ODD_OF_BERT | {"num_hidden_layers": (7,), "is_decoder": (True,)},
        trains_padding=True,
        targets=r".*\.albert_layers\.\d+\.(attention\.value|attention\.dense|ffn)",
        few=("questions",),
    )
}
HEADS = {
    "AlbertForPreTraining": (
        lambda config, _: sentence_pairs.MaskedLMNextSentence().network(config),
        {"prediction_logits": "masked_lm_logits", "sop_logits": "next_sentence_logits"},
    )
}
_MODEL = str(tests.GOLDEN / "sentencepiece" / "tiny.model")
TOKENIZERS = {
    "albert": Tokenizer(
        "albert", "AlbertTokenizer", "pieces", lambda _: ({"model": _MODEL}, _MODEL)
    )
}
