"""What transformers says, in a process of its own: its models and tokenizers, asked.

    python ask_transformers.py FOLDER

FOLDER/questions.json lists
    read: folders of models to load, by the class that their config.json names;
    make: folders with a config.json, to save a model of random weights in;
    split: folders of tokenizers, to split the texts of FOLDER/texts.json.
In each, inputs.npz is answered by outputs.npz, and loading.json tells what of the weights
was missing or left over; texts by ids.json.
"""

import json
import pathlib
import sys

import numpy as np
import torch
import transformers


def class_of(folder):
    (name,) = json.loads((folder / "config.json").read_text())["architectures"]
    return getattr(transformers, name)


def answer(model, folder):
    with np.load(folder / "inputs.npz") as file:
        inputs = {name: torch.from_numpy(file[name]) for name in file}
    with torch.inference_mode():
        outputs = model.eval()(**inputs)
    np.savez(folder / "outputs.npz", **{k: v.numpy() for k, v in outputs.items()})


def read(folder):
    model, loading = class_of(folder).from_pretrained(folder, output_loading_info=True)
    (folder / "loading.json").write_text(json.dumps(loading, default=sorted))
    answer(model, folder)


def make(folder):
    config = transformers.BertConfig.from_pretrained(folder)
    model = class_of(folder)(config)
    with torch.no_grad():
        for weights in model.parameters():  # biases are 0 at first, and say nothing
            weights += 0.1 * torch.randn_like(weights)
    model.save_pretrained(folder)
    answer(model, folder)


def split(folder, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert isinstance(tokenizer, transformers.BertTokenizer), type(tokenizer)
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    (folder / "ids.json").write_text(json.dumps(ids))


def main(folder):
    torch.manual_seed(1)
    questions = json.loads((folder / "questions.json").read_text())
    for name in questions["read"]:
        read(folder / name)
    for name in questions["make"]:
        make(folder / name)
    texts = json.loads((folder / "texts.json").read_text())
    for name in questions["split"]:
        split(folder / name, texts)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
