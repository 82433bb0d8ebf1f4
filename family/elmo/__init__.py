"""ELMo (arXiv:1802.05365): LSTMs in both directions, over whole words."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "elmo": ("family.elmo.encoder:ElmoConfig", "family.elmo.encoder:ElmoEncoder")
    },
    objectives={
        "bidirectional_lm": ("family.elmo.bidirectional_lm:BidirectionalLM", None)
    },
    formats=("family.elmo.bilm:Bilm",),
    model_files=("*options.json", "words.txt"),
    tokenizers={"whole_words": "family.elmo.tokenizer:WholeWordsKind"},
)
