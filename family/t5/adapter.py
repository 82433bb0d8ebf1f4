"""T5 in mesh_tensorflow's checkpoints, and in Hugging Face's layout."""

from absl import logging

from training.interchange.adapter import Adapter

_ATTENTION = ("q", "k", "v", "o")
# A layer's parts in order: what each of them is, and its modules.
_ENCODER = ("SelfAttention", "DenseReluDense")
_DECODER = ("SelfAttention", "EncDecAttention", "DenseReluDense")
_BIAS = "SelfAttention", "relative_attention_bias"
_FEED_FORWARD = ("wi", "wi_0", "wi_1", "wo")
# Our key -> theirs.
_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_decoder_layers": "num_decoder_layers",
    "num_attention_heads": "num_heads",
    "attention_head_size": "d_kv",
    "intermediate_size": "d_ff",
    "feed_forward_proj": "feed_forward_proj",
    "hidden_dropout_prob": "dropout_rate",
    "relative_attention_num_buckets": "relative_attention_num_buckets",
    "relative_attention_max_distance": "relative_attention_max_distance",
    "layer_norm_eps": "layer_norm_epsilon",
    "initializer_factor": "initializer_factor",
    "pad_token_id": "pad_token_id",
    "eos_token_id": "eos_token_id",
}


def _stack(name, parts):
    """The modules of encoder or decoder."""
    for number, part in enumerate(parts):
        scope = f"{name}/block_#/layer_{number:03d}"
        prefix = f"{name}.block.#.layer.{number}"
        yield f"{scope}/layer_norm", f"{prefix}.layer_norm", "scale"
        of_part = _FEED_FORWARD if part == "DenseReluDense" else _ATTENTION
        kind = "own_dense" if part == "DenseReluDense" else "matrix"
        for module in of_part:
            yield f"{scope}/{part}/{module}", f"{prefix}.{part}.{module}", kind
    # Only the first layer has one.
    attention, bias = _BIAS
    yield (
        f"{name}/block_#/layer_000/{attention}/{bias}",
        f"{name}.block.#.layer.0.{attention}.{bias}",
        "matrix",
    )
    yield f"{name}/final_layer_norm", f"{name}.final_layer_norm", "scale"


_TABLE, _OF_TABLE = "shared/embedding", "the table of word embeddings"


class T5Adapter(Adapter):
    """They have other keys.

    Source: huggingface/transformers v5.23.0 models/t5/configuration_t5.py.
    """

    architecture = model_type = "t5"
    modules = (
        (_TABLE, "shared", "embedding"),
        *_stack("encoder", _ENCODER),
        *_stack("decoder", _DECODER),
        ("decoder/logits", "lm_head", "own_dense"),
    )
    numbers = (r"(?<=/block_)\d+(?=/)", r"(?<=\.block\.)\d+(?=\.)")
    digits = 3
    scope = ("shared/", "encoder/", "decoder/")
    encoder = ("", ())
    masked_lm = _TABLE  # the duplicates below are compared with it
    tied = {
        f"{stack}.embed_tokens.weight": (_TABLE, _OF_TABLE)
        for stack in ("encoder", "decoder")
    }
    shared = {"decoder/logits/kernel": (_TABLE, _OF_TABLE)}
    # Transformers 5 shares the table even if outputs are not scaled.
    shared_if = {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    why_all_layers = (
        "are those of an encoder and of a decoder, whose first ones have the biases of "
        "all; set a smaller num_hidden_layers in the config of a new model instead"
    )
    classes = {
        ("decoder/final_layer_norm/scale",): "T5ForConditionalGeneration",
        (): "T5EncoderModel",
    }
    constants = r"(?!)"

    def from_hugging_face(self, values):
        fields = {ours: values[key] for ours, key in _KEYS.items() if key in values}
        fields.setdefault("vocab_size", 32128)
        start = values.get("decoder_start_token_id")
        if start is not None and start != fields.get("pad_token_id", 0):
            raise ValueError(
                f"decoder_start_token_id is {start!r:.40}; in a T5, padding begins what "
                "the decoder reads, so it must be pad_token_id"
            )
        rate = fields.get("hidden_dropout_prob", self.config.hidden_dropout_prob)
        if values.get("classifier_dropout", 0.0) not in (None, 0.0, rate):
            logging.warning(
                "classifier_dropout=%r is ignored: dropout_rate=%r is used in its place",
                values["classifier_dropout"],
                rate,
            )
        # transformers 5 sets tie_word_embeddings in every file, and moves what it said
        # about v1.1 to a key of its own.
        tied = values.get("tie_word_embeddings", True)
        scaled = values.get("scale_decoder_outputs", tied)
        return self.config.from_dict(
            fields
            | {
                "tie_word_embeddings": tied is True and scaled is True,
                "scale_decoder_outputs": scaled,
            }
        )

    def to_hugging_face(self, config) -> dict:
        if config.tie_word_embeddings and not config.scales_outputs:
            raise ValueError(
                "scale_decoder_outputs is false and tie_word_embeddings true; in Hugging "
                "Face's t5, only logits with a matrix of their own are not scaled"
            )
        values = {key: getattr(config, ours) for ours, key in _KEYS.items()}
        return values | {
            "model_type": self.model_type,
            "num_decoder_layers": config.decoder_layers,
            "decoder_start_token_id": config.pad_token_id,
            "is_encoder_decoder": True,
            "tie_word_embeddings": config.tie_word_embeddings,
            "scale_decoder_outputs": config.scales_outputs,
        }
