"""T5's table of names: those of mesh_tensorflow's checkpoints, and Hugging Face's."""

from training.interchange.names import Names

_ATTENTION = ("q", "k", "v", "o")
# A layer's parts in order: what each of them is, and its modules.
_ENCODER = ("SelfAttention", "DenseReluDense")
_DECODER = ("SelfAttention", "EncDecAttention", "DenseReluDense")
_BIAS = "SelfAttention", "relative_attention_bias"
_FEED_FORWARD = ("wi", "wi_0", "wi_1", "wo")


def _stack(name, parts):
    """The modules of encoder or decoder."""
    for number, part in enumerate(parts):
        ours, theirs = (
            f"{name}/block_#/layer_{number:03d}",
            f"{name}.block.#.layer.{number}",
        )
        yield f"{ours}/layer_norm", f"{theirs}.layer_norm", "scale"
        of_part = _FEED_FORWARD if part == "DenseReluDense" else _ATTENTION
        kind = "own_dense" if part == "DenseReluDense" else "matrix"
        for module in of_part:
            yield f"{ours}/{part}/{module}", f"{theirs}.{part}.{module}", kind
    # Only the first layer has one.
    attention, bias = _BIAS
    yield (
        f"{name}/block_#/layer_000/{attention}/{bias}",
        f"{name}.block.#.layer.0.{attention}.{bias}",
        "matrix",
    )
    yield f"{name}/final_layer_norm", f"{name}.final_layer_norm", "scale"


_TABLE, _OF_TABLE = "shared/embedding", "the table of word embeddings"

T5 = Names(
    modules=(
        (_TABLE, "shared", "embedding"),
        *_stack("encoder", _ENCODER),
        *_stack("decoder", _DECODER),
        ("decoder/logits", "lm_head", "own_dense"),
    ),
    numbers=(r"(?<=/block_)\d+(?=/)", r"(?<=\.block\.)\d+(?=\.)"),
    digits=3,
    encoder=("", ()),
    masked_lm=_TABLE,  # the duplicates below are compared with it
    tied={
        f"{stack}.embed_tokens.weight": (_TABLE, _OF_TABLE)
        for stack in ("encoder", "decoder")
    },
    shared={"decoder/logits/kernel": (_TABLE, _OF_TABLE)},
    why_all_layers=(
        "are those of an encoder and of a decoder, whose first ones have the biases of "
        "all; set a smaller num_hidden_layers in the config of a new model instead"
    ),
    heads={},
    classes={
        ("decoder/final_layer_norm/scale",): "T5ForConditionalGeneration",
        (): "T5EncoderModel",
    },
    causal={},
    constants=r"(?!)",
)
