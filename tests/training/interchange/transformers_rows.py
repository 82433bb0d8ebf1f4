"""What tests know of transformers' models of an architecture, and how they draw configs.

BERT's row is in transformers_configs.py; a relative's transformers_cases.py has

    ROWS: architecture -> `Theirs`.
    HEADS: the whole name of a class -> the fields of a `transformers_models.Head`.
    TOKENIZERS: name -> `Tokenizer`.
"""

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

LENGTH = 9  # of the rows that a model must be able to read
TASKS = "SequenceClassification", "TokenClassification", "QuestionAnswering"


class Theirs(NamedTuple):
    """Their models of an architecture.

    Attributes:
        classes: the first is that of an encoder alone.
        draw: the usual values of a config.
        odd: key -> values that the release lacks.
        pad: the id of padding, unless a config says it.
        pads_left: whether padding comes first.
        has_mask: whether a model is told where padding is.
        compares_padding: whether outputs there are the same.
        trains_padding: whether we train the vector of padding, which they never do; None
            leaves out the test of what questions teach.
        without_ours: classes with heads that no network here has; a run says that it does
            not use them.
        unread: classes of which nothing is read, because their encoder has another name.
        unpadded: classes that read padding.
        added: class -> names of weights that come back although they were not there.
        change_rows: (class, rows), changes them.
        more_inputs: (class, rows) -> more inputs of theirs.
        targets: what peft adapts; some names end like those of modules that are not.
        saved: head -> modules of it that peft does not know.
        few: heads whose adapters the default tier tries, besides classification.
    """

    classes: tuple[str, ...]
    draw: Callable[[random.Random], dict]
    odd: Mapping[str, tuple]
    pad: int = 0
    pads_left: bool = False
    has_mask: bool = True
    compares_padding: bool = True
    trains_padding: bool | None = None
    without_ours: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    unpadded: tuple[str, ...] = ()
    added: Mapping[str, set] = {}
    change_rows: Callable[[str, dict], None] = lambda their_class, rows: None
    more_inputs: Callable[[str, dict], dict] = lambda their_class, rows: {}
    targets: str | list | None = None
    saved: Mapping[str, list] = {}
    few: tuple[str, ...] = ()


class Tokenizer(NamedTuple):
    """A tokenizer of theirs and of ours.

    Attributes:
        form: "words", "pieces" or "bytes"; what may differ depends on it.
        make: folder to write to -> the arguments of theirs, our vocabulary.
        flags: ours.
        is_converted: whether convert_checkpoint.py writes a model with it, too.
    """

    model_type: str
    their_class: str
    form: str
    make: Callable[[object], tuple[dict, str]]
    flags: Mapping[str, object] = {}
    is_converted: bool = False


def classes(prefix: str, *names: str, tasks=(*TASKS, "MultipleChoice")):
    return tuple(prefix + name for name in (*names, *(f"For{task}" for task in tasks)))


ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu")
OTHER_ACTIVATIONS = "silu", "quick_gelu", "gelu_10", "mish", "relu2"
ODD_OF_BERT = {
    "hidden_act": OTHER_ACTIVATIONS,
    "layer_norm_eps": (1e-5, 1e-3),
    "is_decoder": (True,),
    "add_cross_attention": (True,),
    "tie_word_embeddings": (False,),
    "chunk_size_feed_forward": (3,),
    "pad_token_id": (3,),
    "dtype": ("bfloat16", "float16"),
}
ADAPTED_OF_BERT = (
    r".*encoder\.layer\.\d+\.(attention\.self\.key|attention\.output\.dense)"
)


def draw_bert(drawn: random.Random) -> dict:
    heads = drawn.choice((1, 2, 3, 4))
    return {
        "vocab_size": drawn.randrange(30, 200),
        "hidden_size": heads * drawn.choice((3, 4, 7, 8, 16)),
        "num_hidden_layers": drawn.randrange(1, 5),
        "num_attention_heads": heads,
        "intermediate_size": drawn.randrange(5, 90),
        "hidden_act": drawn.choice((*ACTIVATIONS, "gelu_python", "tanh", "linear")),
        "max_position_embeddings": drawn.randrange(LENGTH + 6, 40),
        "type_vocab_size": drawn.randrange(1, 6),
        "initializer_range": drawn.choice((0.02, 0.1)),
        "hidden_dropout_prob": drawn.choice((0.0, 0.1, 0.25)),
        "attention_probs_dropout_prob": drawn.choice((0.0, 0.1, 0.25)),
    }
