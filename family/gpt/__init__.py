"""GPT (Radford et al., 2018): reads from the left, and predicts the next token."""

from extensions import Extension

EXTENSION = Extension(
    architectures={
        "gpt": ("family.gpt.encoder:GptConfig", "family.gpt.encoder:GptEncoder")
    },
    adapters={"gpt": "family.gpt.adapter:GptAdapter"},
    model_files=("encoder_bpe*.json", "vocab*.bpe"),
    forms={"next": "family.gpt.form:NEXT"},
    tokenizers={"gpt_bpe": "family.gpt.tokenizer:GptBpeKind"},
    objectives={"next_token": ("family.gpt.next_token:NextToken", None)},
)
