"""A task as a SavedModel and in Python, for tests that compare the two."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from serving import forms
from text.graphs.lookup import graph_of
from training.finetuning.task import Predictions, Task

_SHAPES = {"text": [None], "list": [None, None]}


class Served:
    """A task's `serve`, saved and loaded."""

    def __init__(self, task: Task, model, directory):
        module = tf.Module()
        module.weights = [variable.value for variable in model.weights]
        (directory / "vocabulary").mkdir(exist_ok=True)
        module.tokenizer = graph_of(task.tokenizer, str(directory / "vocabulary"))

        specs = {
            name: tf.TensorSpec(_SHAPES[kind], tf.string, name)
            for name, kind in task.inputs.items()
        }

        # As serving/export.py does.
        @functools.partial(tf.function, autograph=False)
        def serve(**texts):
            return task.serve(module.tokenizer, model, **texts)

        path = str(directory / "served")
        signature = serve.get_concrete_function(**specs)
        tf.saved_model.save(module, path, signatures=signature)
        self.task, self._loaded = task, tf.saved_model.load(path)

    def outputs(self, requests: list[dict]) -> dict[str, np.ndarray]:
        """What the signature gives for a batch."""
        tensors = {}
        for name, kind in self.task.inputs.items():
            values = [request[name] for request in requests]
            if kind == "text":
                tensors[name] = tf.constant(values, tf.string, [len(values)])
            else:
                ragged = tf.ragged.constant(values, tf.string, ragged_rank=1)
                tensors[name] = ragged.to_tensor("")
        outputs = self._loaded.signatures["serving_default"](**tensors)
        return {name: value.numpy() for name, value in outputs.items()}

    def answers(self, requests: list[dict]) -> list[dict]:
        """As JSON."""
        return forms.answers(self.task.form, self.outputs(requests), requests)


class Exported:
    """A model in Python and as a SavedModel."""

    def __init__(self, task: Task, model, directory, split: str = "test"):
        self.task, self.model, self.split = task, model, split
        self.served = Served(task, model, directory)

    def in_python(self, examples: list) -> list[dict]:
        found = predictions(self.task, self.model, examples, self.split)
        return self.task.answers(found)

    def answers(self, examples: list) -> list[dict]:
        return self.served.answers([self.task.request(each) for each in examples])


def predictions(task: Task, model, examples: list, split: str) -> Predictions:
    """What a model says of examples, with rows padded to the full length."""
    numbers, made = [], []
    for number, example in enumerate(examples):
        made += task.featurize(example, split)
        numbers += [number] * (len(made) - len(numbers))
    length = task.flags.max_seq_length
    layout = dataclasses.replace(task.layout(examples, length), labels={})
    batch = layout.pack(made)
    outputs = tf.function(model)(
        {name: values.astype(np.int32) for name, values in batch.items()}
    )
    outputs = {name: values.numpy() for name, values in outputs.items()}
    notes = [row.notes for row in made]
    return Predictions(split, examples, notes, np.array(numbers), outputs)
