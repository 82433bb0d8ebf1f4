"""RoBERTas of transformers."""

import tests
from tests.training.interchange.transformers_rows import (
    ADAPTED_OF_BERT,
    LENGTH,
    ODD_OF_BERT,
    Theirs,
    Tokenizer,
    classes,
    draw_bert,
)


def _draw(drawn):
    pad = drawn.randrange(4)
    return draw_bert(drawn) | {
        "pad_token_id": pad,
        "type_vocab_size": drawn.choice((1, 1, 2)),
        "layer_norm_eps": drawn.choice((1e-5, 1e-12)),
        "max_position_embeddings": drawn.randrange(LENGTH + pad + 1, 40),
    }


ROWS = {
    "roberta": Theirs(
        classes("Roberta", "Model", "ForMaskedLM", "ForCausalLM"),
        _draw,
        ODD_OF_BERT,
        pad=1,
        trains_padding=False,
        targets=ADAPTED_OF_BERT,
        few=("tagging",),
    )
}
_BYTES = str(tests.GOLDEN / "byte_bpe")
_FILES = {"vocab": f"{_BYTES}/vocab.json", "merges": f"{_BYTES}/merges.txt"}
TOKENIZERS = {
    "roberta": Tokenizer(
        "roberta",
        "RobertaTokenizer",
        "bytes",
        lambda _: (_FILES, _BYTES),
        is_converted=True,
    )
}
