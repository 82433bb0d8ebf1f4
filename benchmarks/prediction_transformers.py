"""The other side of benchmarks/prediction.py: runs transformers' pipelines on request.
Needs only transformers and PyTorch.

The first line of standard input has the settings. Each further line asks for the answers
[label, probability] to all texts in batches of {"batch_size"}, or to the first
{"one_by_one"} of them, each in a call of its own.
"""

import json
import sys

import torch
import transformers

from benchmarks import turns


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    torch.set_num_threads(settings["num_threads"])
    classify = transformers.pipeline("text-classification", settings["model_dir"])
    lengths = {"truncation": True, "max_length": settings["max_seq_length"]}
    texts = settings["texts"]

    def one(text):
        [answer] = classify(text, **lengths)
        return answer["label"], answer["score"]

    def work(request):
        if count := request.get("one_by_one"):
            return turns.one_by_one(one, texts[:count])
        answers = classify(texts, batch_size=request["batch_size"], **lengths)
        return {"answers": [(answer["label"], answer["score"]) for answer in answers]}

    classify(texts[: settings["warm_up"]], batch_size=8, **lengths)
    turns.answer(work)


if __name__ == "__main__":
    main()
