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
    help={
        "objective": "bidirectional_lm: ELMo's; language models in both directions.",
        "optimizer": "adagrad is ELMo's, whose rate is 0.2 in the release.",
        "features": "mix is ELMo's.",
        "words_file": "Such a model is a released ELMo: options.json and HDF5 weights.",
    },
)
