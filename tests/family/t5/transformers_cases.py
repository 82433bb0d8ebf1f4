"""T5s of transformers."""

import tests
from family.t5.decoder import TextToTextModel
from tests.training.interchange.transformers_rows import (
    TASKS,
    Theirs,
    Tokenizer,
    classes,
)
from text.tokenizers import sentencepiece_files
from text.tokenizers.sentencepiece_files import Piece


def _draw(drawn):
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


def _change_rows(their_class, rows):
    if their_class == "T5ForSequenceClassification":
        rows["input_ids"][:, 0] = 1  # the end of a text, whose state its head reads


ROWS = {
    "t5": Theirs(
        classes(
            *("T5", "Model", "EncoderModel", "ForConditionalGeneration"), tasks=TASKS
        ),
        _draw,
        {
            "feed_forward_proj": ("gelu", "gated-silu", "gated-relu", "silu"),
            "decoder_start_token_id": (2,),
            "relative_attention_num_buckets": (5, 7),
            "pad_token_id": (3,),
            "scale_decoder_outputs": (True, False),
            "dtype": ("bfloat16",),
        },
        compares_padding=False,
        without_ours=("T5ForQuestionAnswering",),
        unread=("T5ForSequenceClassification", "T5ForTokenClassification"),
        added={"T5Model": {"lm_head.weight"}},  # it is written as one with logits
        change_rows=_change_rows,
    )
}
_WRITES = (lambda config, _: TextToTextModel(config), {"logits": ""}, True)
HEADS = {"T5Model": _WRITES, "T5ForConditionalGeneration": _WRITES}


def _make_tokenizer(folder):
    """The pieces of XLNet's golden model, with the special tokens of T5."""
    model = (tests.GOLDEN / "sentencepiece" / "xlnet.model").read_bytes()
    normal = [(t, s) for t, s, _ in sentencepiece_files.pieces(model) if s < 0]
    special = (
        ("<pad>", Piece.CONTROL),
        ("</s>", Piece.CONTROL),
        ("<unk>", Piece.UNKNOWN),
    )
    pieces = [(token, 0.0, kind) for token, kind in special]
    pieces += [(token, score, Piece.NORMAL) for token, score in normal]
    path = folder / "t5.model"
    path.write_bytes(
        sentencepiece_files.model(pieces, sentencepiece_files.specification(model))
    )
    return {"model": str(path)}, str(path)


TOKENIZERS = {"t5": Tokenizer("t5", "T5Tokenizer", "pieces", _make_tokenizer)}
