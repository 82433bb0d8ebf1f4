"""GPTs of transformers."""

import tests
from modeling.objectives import tasks
from tests.training.interchange.transformers_rows import (
    LENGTH,
    Theirs,
    Tokenizer,
    classes,
)


def _draw(drawn):
    heads = drawn.choice((1, 2, 3, 4))
    return {
        "vocab_size": drawn.randrange(30, 200),
        "n_embd": heads * drawn.choice((3, 4, 7, 8, 16)),
        "n_layer": drawn.randrange(1, 5),
        "n_head": heads,
        "n_positions": drawn.randrange(LENGTH, 40),
        "afn": drawn.choice(("gelu", "relu")),
        "layer_norm_epsilon": drawn.choice((1e-5, 1e-12)),
        "pad_token_id": 0,
    }


_BOTH = "OpenAIGPTDoubleHeadsModel"


def _more_inputs(their_class, rows):
    lasts = {"mc_token_ids": rows["input_mask"].sum(-1) - 1}
    return lasts if their_class == _BOTH else {}


ROWS = {
    "gpt": Theirs(
        classes(
            *("OpenAIGPT", "Model", "LMHeadModel", "DoubleHeadsModel"),
            tasks=("SequenceClassification",),
        ),
        _draw,
        {
            "afn": ("silu", "swish"),
            "tie_word_embeddings": (False,),
            "summary_type": ("mean", "first", "last"),
            "summary_use_proj": (False,),
            "summary_proj_to_labels": (False,),
            "summary_activation": ("tanh",),
            "dtype": ("bfloat16",),
        },
        has_mask=False,  # it reads from left to right
        compares_padding=False,
        without_ours=("OpenAIGPTForSequenceClassification",),
        more_inputs=_more_inputs,
    )
}
HEADS = {
    _BOTH: (lambda config, _: tasks.Choice().network(config), {"mc_logits": "logits"})
}
_GPT = tests.GOLDEN / "gpt_bpe"
_VOCABULARY = f"{_GPT}/encoder_bpe_40000.json"
_FILES = {"vocab": _VOCABULARY, "merges": f"{_GPT}/vocab_40000.bpe"}
TOKENIZERS = {
    "gpt": Tokenizer(
        "openai-gpt", "OpenAIGPTTokenizer", "bytes", lambda _: (_FILES, _VOCABULARY)
    )
}
