"""The other side of benchmarks/encoding_vectors.py: encodes by sentence-transformers on
request. Needs only that and PyTorch.

The first line of standard input has the settings. Each further line asks for the vectors of
all texts, or of the first {"one_by_one"} of them, each in a call of its own.
"""

import json
import sys

import torch
from sentence_transformers import SentenceTransformer

from benchmarks import turns


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    torch.set_num_threads(settings["num_threads"])
    model = SentenceTransformer(settings["model_dir"], device="cpu")
    texts, size = settings["texts"], settings["batch_size"]

    def work(request):
        if count := request.get("one_by_one"):
            return turns.one_by_one(
                lambda text: model.encode([text])[0, 0].item(), texts[:count]
            )
        vectors = model.encode(texts, batch_size=size, show_progress_bar=False)
        return {"answers": vectors[: settings["compared"]].tolist()}

    model.encode(texts[: settings["warm_up"]], show_progress_bar=False)
    turns.answer(work)


if __name__ == "__main__":
    main()
