"""ModernBERTs of transformers."""

from tests.family.modern_bert import golden
from tests.training.interchange.transformers_rows import (
    OTHER_ACTIVATIONS,
    Theirs,
    Tokenizer,
    classes,
)


def draw(drawn):
    heads = drawn.choice((1, 2, 3))
    biases = ("attention", "mlp", "norm", "classifier", "decoder")
    return {
        "vocab_size": drawn.randrange(30, 90),
        "hidden_size": heads * drawn.choice((4, 6, 16)),
        "num_attention_heads": heads,
        "num_hidden_layers": drawn.randrange(1, 6),
        "intermediate_size": drawn.randrange(5, 60),
        # With 2 or 3 in blocks.
        "local_attention": drawn.choice((2, 3, 7, 8, 12)),
        "global_attn_every_n_layers": drawn.choice((1, 2, 3, 4)),
        "max_position_embeddings": 80,
        "global_rope_theta": drawn.choice((160000.0, 500.0)),
        "local_rope_theta": drawn.choice((10000.0, 50.0)),
        "hidden_activation": drawn.choice(("gelu", "gelu_new", "relu")),
        "classifier_activation": drawn.choice(("gelu", "gelu_pytorch_tanh", "relu")),
        "classifier_pooling": drawn.choice(("cls", "mean")),
        "norm_eps": drawn.choice((1e-5, 1e-6)),
        "initializer_range": 0.1,
        "pad_token_id": 3,
        **{f"{name}_bias": drawn.random() < 0.5 for name in biases},
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
        **dict.fromkeys(("cls_token_id", "sep_token_id")),
    }


ROWS = {
    "modern_bert": Theirs(
        classes("ModernBert", "Model", "ForMaskedLM"),
        draw,
        {
            "hidden_activation": OTHER_ACTIVATIONS,
            "classifier_activation": OTHER_ACTIVATIONS,
            "tie_word_embeddings": (False,),
            "dtype": ("bfloat16",),
        },
        compares_padding=False,
        targets=["Wqkv", "Wi"],
        saved=dict.fromkeys(
            ("classification", "tagging", "questions", "choice"), ["head", "classifier"]
        ),
        few=("tagging", "no head"),
    )
}
_FILE = str(golden.FOLDER / "tokenizer.json")
TOKENIZERS = {
    "modern_bert": Tokenizer(
        "modernbert",
        "PreTrainedTokenizerFast",
        "bytes",
        lambda _: ({"tokenizer_file": _FILE}, _FILE),
        is_converted=True,
    )
}
