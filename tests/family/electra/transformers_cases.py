"""ELECTRAs of transformers."""

import tests
from family.electra.replaced_tokens import DiscriminatorModel
from tests.training.interchange.transformers_rows import (
    ADAPTED_OF_BERT,
    ODD_OF_BERT,
    OTHER_ACTIVATIONS,
    Theirs,
    Tokenizer,
    classes,
    draw_bert,
)


def _draw(drawn):
    values = draw_bert(drawn) | {"hidden_act": "gelu"}
    width = drawn.choice((values["hidden_size"], drawn.randrange(3, 40)))
    return values | {"embedding_size": width}


ROWS = {
    "electra": Theirs(
        classes("Electra", "Model", "ForMaskedLM", "ForCausalLM", "ForPreTraining"),
        _draw,
        ODD_OF_BERT
        | {
            "hidden_act": (*OTHER_ACTIVATIONS, "gelu_new", "relu"),
            "summary_type": ("mean", "last"),
            "summary_use_proj": (False,),
            "summary_activation": ("tanh",),
        },
        trains_padding=True,
        targets=ADAPTED_OF_BERT,
        saved={"choice": ["sequence_summary", "classifier"]},
        few=("choice",),
    )
}
HEADS = {
    "ElectraForPreTraining": (
        lambda config, _: DiscriminatorModel(config),
        {"logits": "discriminator_logits"},
    )
}
_VOCABULARY = str(tests.GOLDEN / "tokenization" / "uncased_vocab.txt")
TOKENIZERS = {
    "electra": Tokenizer(
        "electra",
        "BertTokenizer",
        "words",
        lambda _: ({"vocab": _VOCABULARY}, _VOCABULARY),
        is_converted=True,
    )
}
