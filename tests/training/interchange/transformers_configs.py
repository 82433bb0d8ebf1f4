"""Configs of transformers' models with random sizes, and with values that we refuse."""

import dataclasses
import random
from collections.abc import Iterator, Mapping

from training.interchange.table import ADAPTERS

LENGTH = 9  # of the rows that a model must be able to read

_TASKS = "SequenceClassification", "TokenClassification", "QuestionAnswering"
_MORE_TASKS = *_TASKS, "MultipleChoice"


def _classes(prefix, *names, tasks=_MORE_TASKS):
    return tuple(prefix + name for name in (*names, *(f"For{task}" for task in tasks)))


# Architecture -> their classes.
_CLASSES = {
    "bert": _classes(
        *("Bert", "Model", "ForMaskedLM", "LMHeadModel", "ForPreTraining"),
        "ForNextSentencePrediction",
    ),
    "roberta": _classes("Roberta", "Model", "ForMaskedLM", "ForCausalLM"),
    "albert": _classes("Albert", "Model", "ForMaskedLM", "ForPreTraining"),
    "electra": _classes(
        *("Electra", "Model", "ForMaskedLM", "ForCausalLM", "ForPreTraining")
    ),
    "gpt": _classes(
        *("OpenAIGPT", "Model", "LMHeadModel", "DoubleHeadsModel"),
        tasks=("SequenceClassification",),
    ),
    "xlnet": _classes("XLNet", "Model", "LMHeadModel", "ForQuestionAnsweringSimple"),
    "t5": _classes(
        *("T5", "Model", "EncoderModel", "ForConditionalGeneration"), tasks=_TASKS
    ),
}
CLASSES = {name: classes for name, classes in _CLASSES.items() if name in ADAPTERS}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model of theirs.

    Attributes:
        values: of its config, by their names.
        odd: those of them that the release's networks may lack.
    """

    number: int
    architecture: str
    their_class: str
    values: Mapping[str, object]
    odd: Mapping[str, object]

    def __str__(self):
        said = ", ".join(f"{key}={value!r}" for key, value in self.values.items())
        return f"{self.number} {self.their_class}({said})"


_ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu")
_OTHER_ACTIVATIONS = "silu", "quick_gelu", "gelu_10", "mish", "relu2"


def _of_bert(drawn):
    heads = drawn.choice((1, 2, 3, 4))
    return {
        "vocab_size": drawn.randrange(30, 200),
        "hidden_size": heads * drawn.choice((3, 4, 7, 8, 16)),
        "num_hidden_layers": drawn.randrange(1, 5),
        "num_attention_heads": heads,
        "intermediate_size": drawn.randrange(5, 90),
        "hidden_act": drawn.choice((*_ACTIVATIONS, "gelu_python", "tanh", "linear")),
        "max_position_embeddings": drawn.randrange(LENGTH + 6, 40),
        "type_vocab_size": drawn.randrange(1, 6),
        "initializer_range": drawn.choice((0.02, 0.1)),
        "hidden_dropout_prob": drawn.choice((0.0, 0.1, 0.25)),
        "attention_probs_dropout_prob": drawn.choice((0.0, 0.1, 0.25)),
    }


_ODD_OF_BERT = {
    "hidden_act": _OTHER_ACTIVATIONS,
    "layer_norm_eps": (1e-5, 1e-3),
    "is_decoder": (True,),
    "add_cross_attention": (True,),
    "tie_word_embeddings": (False,),
    "chunk_size_feed_forward": (3,),
    "pad_token_id": (3,),
    "dtype": ("bfloat16", "float16"),
}


def _of_electra(drawn):
    values = _of_bert(drawn) | {"hidden_act": "gelu"}
    width = drawn.choice((values["hidden_size"], drawn.randrange(3, 40)))
    return values | {"embedding_size": width}


def _of_albert(drawn):
    values = _of_bert(drawn)
    layers = values["num_hidden_layers"]
    width = drawn.choice((values["hidden_size"], drawn.randrange(3, 40)))
    return values | {
        "embedding_size": width,
        "num_hidden_groups": drawn.randrange(1, layers + 1),
        "inner_group_num": drawn.randrange(1, 4),
        "classifier_dropout_prob": drawn.choice((0.0, 0.1)),
    }


def _of_roberta(drawn):
    pad = drawn.randrange(4)
    return _of_bert(drawn) | {
        "pad_token_id": pad,
        "type_vocab_size": drawn.choice((1, 1, 2)),
        "layer_norm_eps": drawn.choice((1e-5, 1e-12)),
        "max_position_embeddings": drawn.randrange(LENGTH + pad + 1, 40),
    }


def _of_gpt(drawn):
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


def _of_xlnet(drawn):
    heads = drawn.choice((1, 2, 3, 4))
    return {
        "vocab_size": drawn.randrange(30, 200),
        "d_model": heads * drawn.choice((4, 6, 8, 16)),
        "n_layer": drawn.randrange(1, 5),
        "n_head": heads,
        "d_inner": drawn.randrange(5, 90),
        "ff_activation": drawn.choice(_ACTIVATIONS),
        "clamp_len": drawn.choice((-1, -1, 3, 200)),
        "summary_type": drawn.choice(("last", "last", "first", "mean", "cls_index")),
        "mem_len": drawn.choice((None, 512)),
    }


def _of_t5(drawn):
    return {
        "vocab_size": drawn.randrange(30, 200),
        "d_model": drawn.randrange(8, 60),
        "d_kv": drawn.choice((3, 8, 16)),
        "d_ff": drawn.randrange(5, 90),
        "num_layers": drawn.randrange(1, 4),
        "num_decoder_layers": drawn.randrange(1, 4),
        "num_heads": drawn.randrange(1, 5),
        "relative_attention_num_buckets": drawn.choice((4, 8, 32)),
        "relative_attention_max_distance": drawn.choice((17, 20, 128)),
        "feed_forward_proj": drawn.choice(("relu", "gated-gelu")),
        "tie_word_embeddings": drawn.choice((True, False)),
        "layer_norm_epsilon": drawn.choice((1e-6, 1e-5)),
        "decoder_start_token_id": 0,
    }


# Architecture -> its usual values; key -> those that the release lacks.
_DRAWN = {
    "bert": (_of_bert, _ODD_OF_BERT),
    "roberta": (_of_roberta, _ODD_OF_BERT),
    "albert": (
        _of_albert,
        _ODD_OF_BERT | {"num_hidden_layers": (7,), "is_decoder": (True,)},
    ),
    "electra": (
        _of_electra,
        _ODD_OF_BERT
        | {
            "hidden_act": (*_OTHER_ACTIVATIONS, "gelu_new", "relu"),
            "summary_type": ("mean", "last"),
            "summary_use_proj": (False,),
            "summary_activation": ("tanh",),
        },
    ),
    "gpt": (
        _of_gpt,
        {
            "afn": ("silu", "swish"),
            "tie_word_embeddings": (False,),
            "summary_type": ("mean", "first", "last"),
            "summary_use_proj": (False,),
            "summary_proj_to_labels": (False,),
            "summary_activation": ("tanh",),
            "dtype": ("bfloat16",),
        },
    ),
    "xlnet": (
        _of_xlnet,
        {
            "ff_activation": _OTHER_ACTIVATIONS,
            "bi_data": (True,),
            "same_length": (True,),
            "layer_norm_eps": (1e-5,),
            "summary_activation": ("relu",),
            "summary_use_proj": (False,),
            "tie_word_embeddings": (False,),
            "dtype": ("bfloat16",),
        },
    ),
    "t5": (
        _of_t5,
        {
            "feed_forward_proj": ("gelu", "gated-silu", "gated-relu", "silu"),
            "decoder_start_token_id": (2,),
            "relative_attention_num_buckets": (5, 7),
            "pad_token_id": (3,),
            "scale_decoder_outputs": (True, False),
            "dtype": ("bfloat16",),
        },
    ),
}


def cases(number: int, seed: int = 0) -> Iterator[Case]:
    """That many, the same ones for a seed; every class in turn, about every third odd."""
    turns = [(name, kind) for name, kinds in CLASSES.items() for kind in kinds]
    random.Random(seed).shuffle(turns)
    for place in range(number):
        architecture, their_class = turns[place % len(turns)]
        yield case(architecture, their_class, place, random.Random(f"{seed} {place}"))


def case(
    architecture: str,
    their_class: str,
    number: int,
    drawn: random.Random,
    may_be_odd: bool = True,
) -> Case:
    """One of a class."""
    draw, odd_values = _DRAWN[architecture]
    values = {"num_labels": drawn.randrange(1, 6)} | draw(drawn)
    if their_class.endswith(("Answering", "AnsweringSimple", "PreTraining")):
        values["num_labels"] = 2
    reads_forwards = their_class.endswith(("BertLMHeadModel", "CausalLM"))
    values |= {"is_decoder": True} if reads_forwards else {}
    odd = {}
    if may_be_odd and drawn.random() < 1 / 3:
        key = drawn.choice(sorted(odd_values))
        odd = {key: drawn.choice(odd_values[key])}
        if key == "add_cross_attention":  # which only a decoder has
            odd["is_decoder"] = True
    return Case(number, architecture, their_class, values | odd, odd)
