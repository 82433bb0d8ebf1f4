"""GPT (Radford et al., 2018): reads from the left, and predicts the next token."""

from extensions import Extension

# openai/finetune-transformer-lm@a69b5c4 opt.py, adam.
_ADAM = {"bias_correction": True, "corrected": "rate", "epsilon": 1e-8}
EXTENSION = Extension(
    architectures={
        "gpt": ("family.gpt.encoder:GptConfig", "family.gpt.encoder:GptEncoder")
    },
    adapters={"gpt": "family.gpt.adapter:GptAdapter"},
    model_files=("encoder_bpe*.json", "vocab*.bpe"),
    forms={"next": "family.gpt.form:NEXT"},
    tokenizers={"gpt_bpe": "family.gpt.tokenizer:GptBpeKind"},
    objectives={"next_token": ("family.gpt.next_token:NextToken", None)},
    optimizers={
        "openai_adam": ("adam", "times_warmup", _ADAM),
        "openai_adam_cosine": ("adam", "cosine", _ADAM),
        "openai_adam_constant": ("adam", "constant", _ADAM),
    },
    help={
        "objective": "next_token: GPT's; language modelling, for a config whose "
        "attention_direction is left_to_right or right_to_left.",
        "optimizer": "openai_adam, openai_adam_cosine, openai_adam_constant: GPT's; "
        "corrects Adam's bias, also in the weight decay.",
        "lm_loss_weight": "GPT's release uses 0.5.",
        "start_token": "OpenAI's released GPT needs false.",
        "vocab_size": "With GPT-1's BPE it is 40478.",
        "vocab_file": "encoder_bpe_40000.json is GPT-1's BPE.",
        "kind": "gpt_bpe: encoder_bpeNAME.json, with vocabNAME.bpe, GPT-1's BPE.",
    },
)
