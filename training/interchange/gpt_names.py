"""GPT's table of names. OpenAI's files have none; `LAYER` is in their order.

Hugging Face keeps the matrices of query, key and value side by side in one tensor, and
matrices as the release does, [in, out].
"""

from training.interchange.names import Names

# Of a layer: our scope, their module, the kind of module.
LAYER = (
    ("attention/self/query", "attn.query", "columns"),
    ("attention/self/key", "attn.key", "columns"),
    ("attention/self/value", "attn.value", "columns"),
    ("attention/output/dense", "attn.c_proj", "columns"),
    ("attention/output/LayerNorm", "ln_1", "norm"),
    ("intermediate/dense", "mlp.c_fc", "columns"),
    ("output/dense", "mlp.c_proj", "columns"),
    ("output/LayerNorm", "ln_2", "norm"),
)
WORDS, POSITIONS = (
    f"gpt/embeddings/{kind}_embeddings" for kind in ("word", "position")
)

GPT = Names(
    modules=(
        (WORDS, "transformer.tokens_embed", "embedding"),
        (POSITIONS, "transformer.positions_embed", "embedding"),
        *(
            (f"gpt/encoder/layer_#/{scope}", f"transformer.h.#.{module}", kind)
            for scope, module, kind in LAYER
        ),
        ("", "multiple_choice_head.summary", "head"),
    ),
    fused={".attn.c_attn": (".attn.query", ".attn.key", ".attn.value")},
    constants=r"(transformer\.)?(position_ids|h\.\d+\.attn\.bias)",
    layer="gpt/encoder/layer_#",
    encoder=("transformer", ("tokens_embed", "positions_embed", "h")),
    masked_lm=WORDS,  # its head is this table alone
    tied={"lm_head.weight": (WORDS, "the table of word embeddings")},
    # Their classifier has no bias.
    heads={"choice": "OpenAIGPTDoubleHeadsModel"},
    classes={(): "OpenAIGPTLMHeadModel"},
    causal={},
)
