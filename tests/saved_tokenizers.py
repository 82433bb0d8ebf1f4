"""Tokenizers in SavedModels, asked as in Python and as in a server."""

import numpy as np
import tensorflow as tf

from tests import graph_session
from text.graphs.lookup import graph_of, libraries_of

TEXTS = ["Naïve cats, dogs?", "", "1,000 한국어 <S> a", "x" * 300, "e\u0301 é cats"]


def saved(tokenizer, folder):
    """The path of a SavedModel: texts to ids and tokens."""
    (folder / "files").mkdir(parents=True)
    module = tf.Module()
    module.tokenizer = graph_of(tokenizer, str(folder / "files"))

    specs = [tf.TensorSpec([None], tf.string, "texts")]

    @tf.function(input_signature=specs, autograph=False)
    def encode(texts):
        ids = module.tokenizer.encode(texts).to_tensor(0)
        return {"ids": ids, "tokens": module.tokenizer.tokens(ids)}

    tf.saved_model.save(module, str(folder / "model"), signatures=encode)
    return str(folder / "model")


def in_python(tokenizer):
    rows = list(map(tokenizer.encode, TEXTS))
    ids = np.zeros([len(rows), max(map(len, rows))], np.int32)
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = found
    tokens = [[tokenizer.vocabulary.tokens[id].encode() for id in row] for row in ids]
    return {"ids": ids.tolist(), "tokens": tokens}


def by_functions(path):
    serve = tf.saved_model.load(path).signatures["serving_default"]
    outputs = serve(texts=tf.constant(TEXTS))
    return {name: value.numpy().tolist() for name, value in outputs.items()}


def by_session(path, packages=()):
    with graph_session.loaded(path, packages) as session:
        outputs = session.run("serving_default", {"texts": np.array(TEXTS)})
    return {name: value.tolist() for name, value in outputs.items()}


def check_server(tokenizer, folder) -> None:
    """It gives the same ids in Python, in TensorFlow and in a graph session."""
    path = saved(tokenizer, folder / "saved")
    expected = in_python(tokenizer)
    assert by_functions(path) == expected
    assert by_session(path, libraries_of(tokenizer)) == expected
