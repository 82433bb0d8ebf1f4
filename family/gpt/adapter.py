"""GPT in Hugging Face's layout.

Hugging Face keeps the matrices of query, key and value side by side in one tensor, and
matrices as the release does, [in, out].
"""

from absl import logging

from training.interchange.bert_adapter import BertAdapter

# Of a layer: our scope, their module, the kind of module.
_LAYER = (
    ("attention/self/query", "attn.query", "columns"),
    ("attention/self/key", "attn.key", "columns"),
    ("attention/self/value", "attn.value", "columns"),
    ("attention/output/dense", "attn.c_proj", "columns"),
    ("attention/output/LayerNorm", "ln_1", "norm"),
    ("intermediate/dense", "mlp.c_fc", "columns"),
    ("output/dense", "mlp.c_proj", "columns"),
    ("output/LayerNorm", "ln_2", "norm"),
)
_WORDS, _POSITIONS = (
    f"gpt/embeddings/{kind}_embeddings" for kind in ("word", "position")
)
_COLUMNS = (".attn.query.", ".attn.key.", ".attn.value.")
_HOLDER = ".attn.c_attn."
# Our key -> theirs.
_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "hidden_act": "afn",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_epsilon",
}
# There, "gelu" is the tanh form.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
_OTHER_DROPOUTS = ("embd_pdrop", "summary_first_dropout")


class GptAdapter(BertAdapter):
    """They have other keys, and three rates of dropout in place of hidden_dropout_prob.

    Source: huggingface/transformers v5.23.0 models/openai/configuration_openai.py.
    """

    architecture, model_type = "gpt", "openai-gpt"
    modules = (
        (_WORDS, "transformer.tokens_embed", "embedding"),
        (_POSITIONS, "transformer.positions_embed", "embedding"),
        *(
            (f"gpt/encoder/layer_#/{scope}", f"transformer.h.#.{module}", kind)
            for scope, module, kind in _LAYER
        ),
        ("", "multiple_choice_head.summary", "head"),
    )
    constants = r"(transformer\.)?(position_ids|h\.\d+\.attn\.bias)"
    layer = "gpt/encoder/layer_#"
    encoder = ("transformer", ("tokens_embed", "positions_embed", "h"))
    masked_lm = _WORDS  # its head is this table alone
    tied = {"lm_head.weight": (_WORDS, "the table of word embeddings")}
    # Their classifier has no bias.
    heads = {"choice": "OpenAIGPTDoubleHeadsModel"}
    classes = {(): "OpenAIGPTLMHeadModel"}
    causal = {}
    pooled = frozenset()
    defaults = {"vocab_size": 40478, "hidden_act": "gelu_new"}
    fixed_values = {
        key: value
        for key, value in BertAdapter.fixed_values.items()
        if key != "layer_norm_eps"
    }
    fixed_in_heads = {
        "OpenAIGPTDoubleHeadsModel": {
            "summary_type": "cls_index",
            "summary_use_proj": True,
            "summary_activation": None,
            "summary_proj_to_labels": True,
        }
    }

    def translate(self, values) -> dict:
        self.check_heads(values)
        fields = {ours: values[key] for ours, key in _KEYS.items() if key in values}
        activation = fields.get("hidden_act", "gelu")
        if activation not in list(_ACTIVATIONS):  # not hashed: of any type
            raise ValueError(
                f"afn is {activation!r:.40}; it must be one of {', '.join(_ACTIVATIONS)}"
            )
        fields["hidden_act"] = _ACTIVATIONS[activation]
        used = fields.get("hidden_dropout_prob", self.config.hidden_dropout_prob)
        for key in _OTHER_DROPOUTS:
            if values.get(key, used) != used:
                logging.warning(
                    "%s=%r is ignored: resid_pdrop=%r is used in its place",
                    *(key, values[key], used),
                )
        width = fields.get("hidden_size", self.config.hidden_size)
        if isinstance(width, int):  # else refused later
            fields["intermediate_size"] = 4 * width
        fixed = {key: values[key] for key in self.fixed_values if key in values}
        return super().translate(fields | fixed | {"is_decoder": True})

    def to_hugging_face(self, config) -> dict:
        if config.intermediate_size != 4 * config.hidden_size:
            raise ValueError(
                f"intermediate_size is {config.intermediate_size}; in Hugging Face's "
                f"openai-gpt it is 4 times hidden_size, {4 * config.hidden_size}"
            )
        if config.hidden_act not in _ACTIVATIONS:
            raise ValueError(
                f"hidden_act is {config.hidden_act!r}; in Hugging Face's openai-gpt it "
                f"must be one of {', '.join(_ACTIVATIONS)}"
            )
        values = {key: getattr(config, ours) for ours, key in _KEYS.items()}
        return values | {
            "model_type": self.model_type,
            **dict.fromkeys(_OTHER_DROPOUTS, config.hidden_dropout_prob),
        }

    def columns(self, name):
        # One name, or three.
        return tuple(dict.fromkeys(name.replace(_HOLDER, c) for c in _COLUMNS))

    def holder(self, name):
        for column in _COLUMNS:
            name = name.replace(column, _HOLDER)
        return name
