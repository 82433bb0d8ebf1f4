"""The other side of benchmarks/prediction.py: runs transformers' pipelines on request.
Needs only transformers and PyTorch.

Standard input has a line of settings, then one batch size per line; each is answered with
a line [seconds, processor seconds, [[label, probability] of each text]].
"""

import json
import sys
import time

import torch
import transformers


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    torch.set_num_threads(settings["num_threads"])
    classify = transformers.pipeline("text-classification", settings["model_dir"])
    lengths = {"truncation": True, "max_length": settings["max_seq_length"]}
    texts = settings["texts"]
    classify(texts[: settings["warm_up"]], batch_size=8, **lengths)
    for line in sys.stdin:
        begun, worked = time.perf_counter(), time.process_time()
        answers = classify(texts, batch_size=json.loads(line), **lengths)
        seconds = time.perf_counter() - begun, time.process_time() - worked
        pairs = [(answer["label"], answer["score"]) for answer in answers]
        print(json.dumps([*seconds, pairs]), flush=True)


if __name__ == "__main__":
    main()
