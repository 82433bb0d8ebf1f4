"""Another side of benchmarks/prediction.py: keras-hub's BertTextClassifier on request, with
requests as in `prediction_transformers.py`. Its head is random, so it has no answers.
"""

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras_hub  # noqa: E402

from benchmarks import turns  # noqa: E402


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    classifier = keras_hub.models.BertTextClassifier.from_preset(
        settings["model_dir"], num_classes=2
    )
    classifier.preprocessor.sequence_length = settings["max_seq_length"]
    texts = settings["texts"]

    def one(text):
        classifier.predict([text], batch_size=1, verbose=0)

    def work(request):
        if count := request.get("one_by_one"):
            return turns.one_by_one(one, texts[:count]) | {"answers": []}
        classifier.predict(texts, batch_size=request["batch_size"], verbose=0)
        return {"answers": []}

    work({"batch_size": 32})
    one(texts[0])
    turns.answer(work)


if __name__ == "__main__":
    main()
