"""What peft says, in a process of its own.

    python ask_peft.py FOLDER SETTINGS

FOLDER/base is a model of transformers. The adapter in FOLDER/ours is asked about
FOLDER/inputs.npz, and its logits go to FOLDER/ours.npz; FOLDER/theirs becomes a random
adapter, with FOLDER/theirs.npz; SETTINGS, in JSON, are more of its config's.
"""

import json
import pathlib
import sys

import numpy as np
import peft
import torch
import transformers


def answer(model, folder, name):
    with np.load(folder / "inputs.npz") as file:
        inputs = {name: torch.from_numpy(file[name]) for name in file}
    with torch.inference_mode():
        logits = model.eval()(**inputs).logits
    np.savez(folder / f"{name}.npz", logits=logits.numpy())


def main(folder, more):
    torch.manual_seed(1)

    def base():
        kind = transformers.AutoModelForSequenceClassification
        return kind.from_pretrained(folder / "base", num_labels=2)

    answer(peft.PeftModel.from_pretrained(base(), folder / "ours"), folder, "ours")
    settings = peft.LoraConfig(r=3, lora_alpha=6, task_type="SEQ_CLS", **more)
    made = peft.get_peft_model(base(), settings)
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if "lora_B" in name:  # zeros say nothing
                weights += 0.1 * torch.randn_like(weights)
    made.save_pretrained(folder / "theirs")
    answer(made, folder, "theirs")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
