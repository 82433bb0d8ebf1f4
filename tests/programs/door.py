"""What docs/python.md does with a tiny model, on whichever backend Keras has.

python door.py FOLDER write [FILE.keras] | read FILE.keras

`write` leaves <backend>.keras in FOLDER, and the folder <backend>, which `bert.save` wrote.
Both write <backend>_write.npz or _read.npz, also with what files of Keras, perhaps of the
other backend, answer.
"""

import json
import pathlib
import sys

import keras
import numpy as np

import bert
import tests

GOLDEN = tests.GOLDEN / "checkpoint"
TEXTS = ["Open the file.", ("Close it?", "It is closed."), "one of many words " * 50]
REVIEWS = ["It is good.", "It is bad.", ("Is it good?", "It is " * 9 + "bad.")] * 8
LABELS = [1, 0, 0] * 8
BACKEND = keras.backend.backend()


def load(folder) -> bert.TextEncoder:
    """Without dropout, because each backend draws its own."""
    config = json.loads((GOLDEN / "bert_config.json").read_text())
    still = {n: 0.0 for n in ("hidden_dropout_prob", "attention_probs_dropout_prob")}
    (folder / "still.json").write_text(json.dumps(config | still))
    return bert.load(GOLDEN, bert_config_file=folder / "still.json")


def classifier(encoder) -> keras.Model:
    inputs = encoder.inputs()
    head = keras.layers.Dense(2)
    model = keras.Model(inputs, head(encoder(inputs)["pooled_output"]))
    width = encoder.config.hidden_size
    head.kernel.assign(np.linspace(-0.1, 0.1, 2 * width).reshape(width, 2))
    return model


def fit(encoder, model) -> list[float]:
    # Of one length, because JAX compiles the step for each.
    data = bert.dataset(REVIEWS, LABELS, encoder, batch_size=8, max_seq_length=32)
    # Of a few updates, tracing would take nearly all the time; JAX always compiles.
    untraced = {"run_eagerly": True} if BACKEND == "tensorflow" else {}
    model.compile(
        bert.optimizer(1e-3, 3 * len(data), len(data)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **untraced,
    )
    # Keras would shuffle the batches, too, and by an unseeded generator.
    done = model.fit(data, epochs=3, shuffle=False, verbose=0)
    return done.history["loss"]


def answers(path) -> np.ndarray:
    batch = bert.load(GOLDEN).tokenize(REVIEWS[:3], max_seq_length=32)
    return keras.models.load_model(path).predict(batch, verbose=0)


def refused(call) -> str:
    try:
        call()
    except bert.UserError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def write(folder) -> dict[str, np.ndarray]:
    encoder = load(folder)
    batch = encoder.tokenize(TEXTS, max_seq_length=16)
    found = {
        "outputs": keras.ops.convert_to_numpy(encoder(batch)["pooled_output"]),
        "mean": encoder.embed(TEXTS, batch_size=2, max_seq_length=16, doc_stride=7),
        "cls": encoder.embed(TEXTS, "cls", layer=0),
    }
    ((*filled,),) = bert.load_masked_lm(GOLDEN).fill("Open the [MASK].", top_k=3)
    found |= dict(
        zip(("words", "probabilities"), zip(*filled, strict=True), strict=True)
    )
    bert.save(encoder, folder / BACKEND)
    model = classifier(encoder)
    found["losses"] = fit(encoder, model)
    model.save(folder / f"{BACKEND}.keras")
    wrong = {"input_ids": keras.ops.array([[2, -1]])}
    found["wrong"] = refused(lambda: encoder(wrong))
    if BACKEND != "tensorflow":
        found["task"] = refused(lambda: bert.load_task(GOLDEN))
    return found


folder, part, *files = map(pathlib.Path, sys.argv[1:])
found = write(folder) if str(part) == "write" else {}
files += [folder / f"{BACKEND}.keras"] * (str(part) == "write")
found |= {file.stem: answers(file) for file in files}
np.savez(folder / f"{BACKEND}_{part}.npz", **found)
