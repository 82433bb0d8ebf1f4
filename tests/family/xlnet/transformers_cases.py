"""XLNets of transformers."""

import numpy as np

import tests
from modeling.objectives import span_beams
from run_squad import SPAN_HEADS
from tests.training.interchange.transformers_rows import (
    ACTIVATIONS,
    LENGTH,
    OTHER_ACTIVATIONS,
    Theirs,
    Tokenizer,
    classes,
)


def _draw(drawn):
    heads = drawn.choice((1, 2, 3, 4))
    return {
        "vocab_size": drawn.randrange(30, 200),
        "d_model": heads * drawn.choice((4, 6, 8, 16)),
        "n_layer": drawn.randrange(1, 5),
        "n_head": heads,
        "d_inner": drawn.randrange(5, 90),
        "ff_activation": drawn.choice(ACTIVATIONS),
        "clamp_len": drawn.choice((-1, -1, 3, 200)),
        "summary_type": drawn.choice(("last", "last", "first", "mean", "cls_index")),
        "mem_len": drawn.choice((None, 512)),
    }


_BEAMS = "XLNetForQuestionAnswering"


def _change_rows(their_class, rows):
    if their_class == _BEAMS:
        rows["segment_ids"][:] = [0, 0, 0, 0, 0, 0, 1, 1, 2]


def _more_inputs(their_class, rows):
    if their_class != _BEAMS:
        return {}
    hidden = (rows["segment_ids"] == 1).astype(np.float32)
    hidden[:, 5] = 1  # the last token of the text, which is [SEP]
    return {"p_mask": hidden, "cls_index": np.full((len(hidden),), LENGTH - 1)}


def _beams(config, _):
    head = span_beams.SpanBeams(SPAN_HEADS["xlnet"], document_first=True, cls_last=True)
    return head.network(config)


_SUMMARY = ["sequence_summary", "logits_proj"]
ROWS = {
    "xlnet": Theirs(
        classes("XLNet", "Model", "LMHeadModel", "ForQuestionAnsweringSimple"),
        _draw,
        {
            "ff_activation": OTHER_ACTIVATIONS,
            "bi_data": (True,),
            "same_length": (True,),
            "layer_norm_eps": (1e-5,),
            "summary_activation": ("relu",),
            "summary_use_proj": (False,),
            "tie_word_embeddings": (False,),
            "dtype": ("bfloat16",),
        },
        pad=5,
        pads_left=True,
        unpadded=(_BEAMS,),
        change_rows=_change_rows,
        more_inputs=_more_inputs,
        targets=r".*\.ff\.layer_2",
        saved={"classification": _SUMMARY, "choice": _SUMMARY},
        few=("choice",),
    )
}
HEADS = {
    _BEAMS: (
        _beams,
        {"start_top_log_probs": "start_top_scores", "cls_logits": "no_answer_logit"},
    )
}
_MODEL = str(tests.GOLDEN / "sentencepiece" / "xlnet.model")
TOKENIZERS = {
    "xlnet": Tokenizer(
        "xlnet", "XLNetTokenizer", "pieces", lambda _: ({"model": _MODEL}, _MODEL)
    )
}
