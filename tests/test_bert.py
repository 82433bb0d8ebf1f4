"""The door for Python: what docs/python.md shows, and what is refused."""

import functools
import importlib.util
import json
import logging
import shutil
import sys
import types

import keras
import numpy as np
import pytest

import bert
import tests
from training.backend import tf
from training.queries import arguments
from modeling.optimizers.clipping import clip_scale
from modeling.optimizers.in_keras import LearningRate, Optimizer
from modeling.optimizers.table import OptimizerSettings
from tests import (
    classifier,
    forked,
    jobs,
    ner,
    samples,
    squad,
    swag,
    test_docs,
    tiers,
    tiny,
)

MODEL = str(tests.GOLDEN / "checkpoint")
TEXTS = ["Open the file.", ("Close it?", "It is closed."), "one of many words " * 50]


@pytest.fixture(scope="module")
def encoder():
    return bert.load(MODEL)


def test_a_text_and_a_pair_become_rows(encoder):
    batch = encoder.tokenize(TEXTS, max_seq_length=16)
    assert {name: value.shape for name, value in batch.items()} == {
        name: (3, 16) for name in ("input_ids", "input_mask", "segment_ids")
    }
    assert batch["segment_ids"][1].sum() > 0 == batch["segment_ids"][0].sum()
    assert batch["input_mask"][2].all()
    alone = encoder.tokenize(TEXTS[:1])
    length = int(batch["input_mask"][0].sum())
    assert alone["input_ids"].shape == (1, length)
    np.testing.assert_array_equal(alone["input_ids"][0], batch["input_ids"][0, :length])


def test_vectors_are_those_of_the_outputs(encoder):
    vectors = encoder.embed(TEXTS, batch_size=2, max_seq_length=16)
    for text, vector in zip(TEXTS, vectors, strict=True):
        batch = encoder.tokenize([text], max_seq_length=16)
        hidden = np.array(encoder(batch)["sequence_output"])[0]
        mask = batch["input_mask"][0]
        expected = (hidden * mask[:, None]).sum(axis=0) / mask.sum()
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    first = encoder.embed(TEXTS[:1], "cls", layer=0)
    outputs = encoder(encoder.tokenize(TEXTS[:1]), return_all=True)
    expected = np.array(outputs["layer_outputs"][0])[:, 0]
    np.testing.assert_allclose(first, expected, atol=1e-5)
    assert encoder.embed([]).shape == (0, 64)


@pytest.mark.parametrize("layout", ["release", "hugging_face"])
def test_what_is_saved_is_loaded(encoder, tmp_path, layout):
    bert.save(encoder, tmp_path / "saved", layout=layout)
    again = bert.load(tmp_path / "saved")
    np.testing.assert_array_equal(again.embed(TEXTS), encoder.embed(TEXTS))
    with pytest.raises(bert.UserError, match="not an empty folder"):
        bert.save(encoder, tmp_path / "saved")


def test_attributes_of_the_layer_are_not_lost_on_the_handle():
    encoder = bert.load(MODEL)
    encoder.trainable = False
    inputs = encoder.inputs()
    head = keras.layers.Dense(2)
    model = keras.Model(inputs, head(encoder(inputs)["pooled_output"]))
    assert len(model.trainable_variables) == 2 and not encoder.layer.trainable
    with pytest.raises(AttributeError):
        encoder.weights = []


def test_lists_are_read_as_arrays(encoder):
    batch = encoder.tokenize(["a text", "an other one"])
    lists = {name: values.tolist() for name, values in batch.items()}
    expected = encoder(batch)["pooled_output"]
    np.testing.assert_array_equal(encoder(lists)["pooled_output"], expected)


def test_a_model_may_read_two_texts_apart(encoder):
    one, other = encoder.inputs(prefix="a_"), encoder.inputs(prefix="b_")
    vectors = [encoder(inputs)["pooled_output"] for inputs in (one, other)]
    model = keras.Model([one, other], keras.layers.Dot(1, normalize=True)(vectors))
    batch = encoder.tokenize(["a text", "an other one"])
    found = model.predict([batch, batch], verbose=0)
    np.testing.assert_allclose(found, [[1], [1]], atol=1e-5)


@pytest.mark.parametrize("layout", ["release", "hugging_face"])
def test_what_lora_learned_is_saved(tmp_path, layout):
    encoder = bert.load(MODEL)
    for layer in encoder.layer._flatten_layers():
        if isinstance(layer, keras.layers.Dense):
            layer.enable_lora(2)
            layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 0.5))
    bert.save(encoder, tmp_path / "saved", layout=layout)
    batch = encoder.tokenize(["a text"], max_seq_length=16)
    before, saved, learned = (
        one(batch)["sequence_output"].numpy()
        for one in (bert.load(MODEL), bert.load(tmp_path / "saved"), encoder)
    )
    np.testing.assert_allclose(saved, learned, atol=1e-5)
    assert np.abs(saved - before).max() > 1e-3


def test_a_single_request_is_no_list_of_them():
    task = bert.Task(types.SimpleNamespace(parts={"text": "text"}, predict=None))
    single = ("I liked it.", b"I liked it.", {"text": "I liked it."}, np.array("a b"))
    for request in (*single, None, 5):
        with pytest.raises(bert.UserError, match="pass a list of them"):
            task.predict(request)


@pytest.mark.parametrize("shape", [[None, None], None], ids=str)
def test_what_a_function_traces_is_not_read(encoder, shape):
    """So training costs nothing for it; values are checked where arrays are at hand."""
    names = ("input_ids", "segment_ids")
    specs = [{name: tf.TensorSpec(shape, tf.int32) for name in names}]
    read = functools.partial(arguments.encoder_inputs, config=encoder.config)
    batch = {name: tf.constant([[2, -1]]) for name in names}
    found = tf.function(read, input_signature=specs)(batch)
    np.testing.assert_array_equal(found["input_ids"], [[2, -1]])
    with pytest.raises(bert.UserError, match="input_ids has -1"):
        read(batch)


@pytest.mark.exhaustive
def test_texts_of_other_lengths_and_numbers_bring_no_warning(encoder):
    said = []
    handler = types.SimpleNamespace(level=0, handle=said.append)
    logger = logging.getLogger("tensorflow")
    logger.addHandler(handler)
    for number in range(1, 8):
        encoder.embed(["word " * 12 * number] * number, layer=0)
    logger.removeHandler(handler)
    assert not said


def test_rows_of_similar_length_share_a_batch(encoder):
    texts = ["a " * (50 if number % 5 == 0 else 5) for number in range(40)]
    settings = {"batch_size": 8, "max_seq_length": 64}
    data = bert.dataset(texts, range(40), encoder, length_buckets=True, **settings)
    plain = bert.dataset(texts, range(40), encoder, **settings)
    assert len(data) == len(plain)
    for _ in range(3):
        batches = [data[i] for i in range(len(data))]
        assert sum(rows["input_ids"].size for rows, _ in batches) < 0.8 * 40 * 64
        # Keras takes the shape of all from the first two.
        first, second = (rows["input_ids"].shape[1] for rows, _ in batches[:2])
        assert first != second
        seen = [number for _, labels in batches for number in labels]
        assert sorted(seen) == list(range(40)) != seen
        for rows, labels in batches:
            alone = encoder.tokenize([texts[i] for i in labels], 64)["input_ids"]
            width = rows["input_ids"].shape[1]
            np.testing.assert_array_equal(rows["input_ids"], alone[:, :width])
            assert not alone[:, width:].any()
        data.on_epoch_end()


class _Column:
    """A column of a table with rows 7 and 3, as pandas would have it after a selection."""

    def __init__(self, values):
        self._values = values

    def to_numpy(self):
        return np.array(self._values, dtype=object)

    __array__ = to_numpy

    def __iter__(self):
        return iter(self._values)

    def __len__(self):
        return len(self._values)

    def __getitem__(self, row):
        return self._values[[7, 3].index(row)]


@pytest.mark.parametrize("make", [_Column, np.array, iter], ids=lambda f: f.__name__)
def test_texts_and_labels_may_come_from_other_libraries(encoder, make):
    texts, labels = ["a", "b c"], [0, 1]
    settings = {"max_seq_length": 8, "shuffle": False}
    rows, numbers = bert.dataset(make(texts), make(labels), encoder, **settings)[0]
    expected, _ = bert.dataset(texts, labels, encoder, **settings)[0]
    for name, values in expected.items():
        np.testing.assert_array_equal(rows[name], values)
        np.testing.assert_array_equal(encoder.tokenize(make(texts), 8)[name], values)
    assert numbers.tolist() == labels and numbers.dtype.kind == "i"
    vectors = encoder.embed(make(texts), max_seq_length=8)
    np.testing.assert_array_equal(vectors, encoder.embed(texts, max_seq_length=8))
    pairs = np.array([["a", "b"], ["c", "d"]])
    assert encoder.tokenize(pairs)["segment_ids"].any(axis=1).all()


@functools.cache
def _masked():
    return bert.load_masked_lm(MODEL)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: bert.load("nowhere"), "nowhere: no such checkpoint"),
        (lambda e: e.tokenize(["a", 3]), "text 1: is 3; it must be a string"),
        (lambda e: e.tokenize(["a"], max_seq_length=999), "must be from 3 to 128"),
        (lambda e: e.tokenize("a text"), "'a text', a single string; pass a list"),
        (lambda e: e.tokenize(None), "texts is None; pass a list of strings"),
        (lambda e: e.tokenize({"a": "b"}), "pass a list of strings, or of pairs"),
        (lambda e: e.tokenize(b"a text"), "a single string"),
        (lambda e: e.tokenize([("a", None)]), "must be a string, or a pair"),
        (lambda e: e.tokenize(["a"], max_seq_length="16"), "must be a whole number"),
        (lambda e: e(["a text"]), "pass what `tokenize` or `inputs` returns"),
        (lambda e: e.embed(["a"], batch_size=0), "a whole number from 1 to 1,048"),
        (lambda e: e.embed(["a"], layer="last"), "layer='last': must be a whole"),
        (lambda e: e.embed(["a"], pooling="sum"), "must be one of mean, cls"),
        (lambda e: e.embed(["a"], doc_stride=127), "so that none is skipped"),
        (lambda e: e.embed(["a"], layer=7), "layer=7: the model has"),
        (lambda e: bert.dataset("a", [1], e), "a single string"),
        (lambda e: bert.dataset([], [], e), "texts is empty"),
        (lambda e: bert.dataset(["a"], [1], e.layer), "pass what `bert.load` returned"),
        (lambda e: bert.dataset(["a"], [1], e, batch_size=0), "from 1 to 1,048"),
        (
            lambda e: bert.dataset(["a"], ["b"], e),
            "label 0: is 'b'; labels must be numb",
        ),
        (lambda e: bert.dataset(["a"] * 2, [1, None], e), "label 1: is None"),
        (
            lambda e: bert.dataset(["a"], None, e, length_buckets=True),
            "needs labels and shuffle",
        ),
        (lambda e: bert.dataset(["a"] * 2, [1, np.nan], e), "label 1: is nan"),
        (lambda e: bert.dataset(["a"] * 2, [[1], [1, 2]], e), "different lengths"),
        (lambda e: bert.dataset(["a"], 1, e), "labels is 1; pass a list"),
        (
            lambda e: bert.dataset(["a"], [1, 2], e, max_seq_length=9),
            "1 text, but 2",
        ),
        (lambda e: bert.optimizer("1e-5", 9), "learning_rate='1e-5': must be a number"),
        (
            lambda e: bert.optimizer(1e-5, 0),
            "num_train_steps=0: must be a whole number",
        ),
        (lambda e: bert.optimizer(1e-4, 9, num_warmup_steps=20), "=20: is more than"),
        (
            lambda e: bert.optimizer(1e-5, 9, beta=1),
            "beta: no such argument; .* weight",
        ),
        (
            lambda e: bert.optimizer(1e-5, 9, optimizer="sgd"),
            "must be one of adafactor",
        ),
        (
            lambda e: bert.optimizer(1e-5, 9, lr_schedule="x"),
            "lr_schedule='x': must be",
        ),
        (lambda e: bert.optimizer(1e-5, 9, min_lr_ratio=0.1), "only to_ratio"),
        (lambda e: bert.save(e, "gs://bucket/x"), "gs://bucket/x"),
        (lambda e: bert.optimizer(1e-5, 9, layerwise_lr_decay=0.8), "needs encoder="),
        (lambda e: bert.load_task(MODEL), "contains no exported model"),
        (lambda e: bert.save(e, "x", layout="onnx"), "must be one of release"),
        (lambda e: bert.save(e.layer, "x"), "pass what `bert.load` returned"),
        (lambda e: bert.load(""), "path='': must be the path"),
        (lambda e: bert.load(MODEL, dtype="float99"), "must be 'float32' or"),
        (lambda e: bert.load_task("x.keras"), "use keras.models.load_model"),
        (lambda e: bert.load(MODEL, lower=True), "lower: no such argument; .* do_low"),
        (
            lambda e: bert.load(MODEL, split_cjk=1),
            "split_cjk=1: must be True or False",
        ),
        (
            lambda e: e({"input_ids": [[2]], "attention_mask": [[1]]}),
            "attention_mask', which is input_mask here; it may have input_ids, input_ma",
        ),
        (lambda e: e({"input_masks": [[1]]}), "inputs has 'input_masks'; it may have"),
        (lambda e: e({}), "inputs has no input_ids; pass what `tokenize` returns"),
        (lambda e: bert.dataset(["a"], [0], e, seed=-1), "seed=-1: must be a whole"),
        (
            lambda e: bert.optimizer(1, 9, layerwise_lr_decay=8, encoder=e),
            "layerwise_lr_decay=8: must be a number above 0 and at most 1",
        ),
        (lambda e: bert.load_task("nowhere"), "nowhere: no such folder"),
        (lambda e: bert.load_task("hf://a"), "allowed only for a model to load"),
        (lambda e: bert.load(MODEL, vocab_file=1.5), "vocab_file=1.5: must be the"),
        (lambda e: bert.load_task("http://x"), "files at http:// cannot be opened"),
        (lambda e: bert.save(e, "a\0b"), "has the character '.x00', which is not"),
        (lambda e: e.inputs(prefix="/"), "prefix='/': must not have a slash"),
        (lambda e: e({"input_ids": np.array(5)}), "must be whole numbers, .texts, tok"),
        (lambda e: e({"input_ids": [[5], [5, 6]]}), "all of the same length"),
        (lambda e: e({"input_ids": [[-1]]}), "input_ids has -1; it must be from 0 to"),
        (
            lambda e: e({"input_ids": keras.ops.array([[2, -1]])}),
            "input_ids has -1; it must be from 0 to",
        ),
        (
            lambda e: e({"input_ids": [[2]], "segment_ids": 7}),
            "segment_ids is 7; it must be whole numbers",
        ),
        (lambda e: e({"input_ids": [[2] * 999]}), "has rows of 999 tokens; this model"),
        (
            lambda e: e({"input_ids": [[2]], "segment_ids": [[7]]}),
            "segment_ids has 7; it must be from 0 to 1",
        ),
        (
            lambda e: e({"input_ids": [[2, 3]], "input_mask": [[1]]}),
            r"input_mask has the shape \(1, 1\), but input_ids \(1, 2\)",
        ),
        (
            lambda e: e(e.tokenize(["a"]), training="no"),
            "training='no': must be True or False",
        ),
        (lambda e: _masked().fill(["a [MASK]"]), "it must be a string"),
        (lambda e: _masked().fill("a [MASK]", top_k=0), "top_k=0: must be a whole"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(encoder, call, message):
    with pytest.raises(bert.UserError, match=message) as error:
        call(encoder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["adam", "lamb", "adafactor"])
def test_an_update_of_keras_is_one_of_the_loop(name):
    rng = np.random.default_rng(1)
    shapes = {"kernel": (4, 5), "LayerNorm_gamma": (5,)}
    both = [
        [
            keras.Variable(rng.normal(size=s).astype("float32"), name=n)
            for n, s in shapes.items()
        ]
        for rng in (np.random.default_rng(0), np.random.default_rng(0))
    ]
    settings = {"optimizer": name}
    in_loop = OptimizerSettings(**settings)
    made = in_loop.make(both[0])
    in_keras = Optimizer(LearningRate(0.1, 10, 3, settings), settings)
    for step in range(5):
        gradients = [
            keras.ops.convert_to_tensor(rng.normal(size=s).astype("float32"))
            for s in shapes.values()
        ]
        scale, _ = clip_scale(gradients, in_loop.clip_norm)
        rate = in_loop.learning_rate(step, 0.1, 10, 3)
        made.apply(gradients, rate, step, scale)
        in_keras.apply(gradients, both[1])
        for one, other in zip(*both, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def fit_in_keras(folder, backend="tensorflow", part="bert"):
    line = [*jobs.command("tests/programs/fit_in_keras.py", {}), str(folder), part]
    if backend == "tensorflow":
        done = forked.finished(line)
    else:
        env = jobs.ENVIRONMENT | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
        # It compiles hundreds of functions, each for one or a few calls.
        env["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
        done = jobs.finished(line, env=env)
    assert f"all checks passed on {backend}" in done.stdout, done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "backend",
    [
        "tensorflow",
        "jax",
        pytest.param(
            "torch",
            marks=pytest.mark.skipif(
                not importlib.util.find_spec("torch"), reason="needs torch"
            ),
        ),
    ],
)
def test_an_encoder_is_a_layer_of_keras(tmp_path, backend):
    fit_in_keras(tmp_path, backend)


@pytest.mark.exhaustive
def test_every_encoder_has_the_formats_of_keras(tmp_path):
    fit_in_keras(tmp_path, part="formats")


@pytest.mark.exhaustive
def test_fit_on_replicas_equals_one_device(tmp_path):
    fit_in_keras(tmp_path, part="replicas")


# By XLA, the page's two trainings would take as long as all the rest of it; the notebook
# and fit_in_keras.py compile theirs.
_UNCOMPILED = """
from keras.src.trainers import trainer
trainer.model_supports_jit = lambda model: False
"""


@pytest.mark.exhaustive
def test_every_block_of_the_page_runs(tmp_path):
    """In a process of its own: `fit` takes gigabytes where thousands of functions are."""
    shutil.copytree(MODEL, tmp_path / "uncased_L-2_H-128_A-2")
    lines = ["text,label", *["It is good.,good", "It is bad.,bad"] * 16]
    (tmp_path / "reviews.csv").write_text("\n".join(lines) + "\n")
    program = "\n".join(test_docs.blocks("python.md", "python"))
    (tmp_path / "page.py").write_text(_UNCOMPILED + program)
    line = [sys.executable, str(tmp_path / "page.py")]
    done = forked.finished(line, cwd=tmp_path)
    assert "(2, 32, 64) (2, 64)" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "trained" / "bert_config.json").exists()
    assert (tmp_path / "trained_hugging_face" / "model.safetensors").exists()
    assert (tmp_path / "reviews_saved_model" / "saved_model.pb").exists()
    # In a process that has loaded no encoder.
    program = (
        "import bert, keras; keras.models.load_model('reviews.keras'); print('ok')"
    )
    done = jobs.finished([sys.executable, "-c", program], cwd=tmp_path)
    assert done.stdout == "ok\n", done.stderr


def _classifier_files(folder):
    tiny.write(folder, classifier.WORDS, classifier.TINY)
    classifier.custom(folder, "tsv", ["good", "bad"])


# How each script is run on small files; the answers that its own predictions have.
RUNS = {
    "run_classifier.py": (
        _classifier_files,
        functools.partial(classifier.run, task_name="custom"),
        ("predicted", "probabilities"),
    ),
    "run_ner.py": (ner.write_files, ner.run, ("tags",)),
    "run_squad.py": (squad.write_files, squad.run, ("answer",)),
    "run_swag.py": (swag.write_files, swag.run, ("predicted", "probabilities")),
    **samples.collect("ANSWERING", "scripts"),
}


def _asked_and_answered(folder, inputs, names):
    """The requests that a run's own predictions are answers to, and these."""
    if names == ("answer",):
        found = squad.read(folder, "predictions.json")
        for paragraph in squad.read(folder, "dev.json", ".")["data"][0]["paragraphs"]:
            (asked,) = paragraph["qas"]
            request = (asked["question"], paragraph["context"])
            yield request, {"answer": found[asked["id"]]}
    elif names == ("tags",):
        content = (folder / "output" / "predictions.txt").read_text()
        for sentence in content.strip().split("\n\n"):
            words, *_, tags = zip(*map(str.split, sentence.splitlines()), strict=True)
            if words != ("-DOCSTART-",):
                yield {"words": list(words)}, {"tags": list(tags)}
    else:
        content = (folder / "output" / "predictions.jsonl").read_text()
        for line in map(json.loads, content.splitlines()):
            request = {name: line[name] for name in inputs if name in line}
            yield request, {name: line[name] for name in names}


@pytest.mark.parametrize("script", tiers.cases(RUNS, ["run_classifier.py"]))
def test_a_run_without_an_export_answers(tmp_path, untraced, capsys, script):
    write, run, names = RUNS[script]
    write(tmp_path)
    run(tmp_path, do_train=True, do_predict=True)
    capsys.readouterr()
    task = bert.load_task(tmp_path / "output")
    assert not capsys.readouterr().out
    asked = list(_asked_and_answered(tmp_path, task.inputs, names))
    assert len(asked) >= 10
    answers = task.predict([request for request, _ in asked])
    for answer, (_, expected) in zip(answers, asked, strict=True):
        for name in names:
            assert answer[name] == pytest.approx(expected[name], abs=1e-5)
    assert not (tmp_path / "output" / "export").exists()


def test_a_run_of_another_script_needs_an_export(tmp_path):
    shutil.copytree(MODEL, tmp_path / "output")
    for path in (tmp_path / "output").glob("bert_model.ckpt*"):
        path.rename(
            path.with_name(path.name.replace("bert_model.ckpt", "model.ckpt-1"))
        )
    (tmp_path / "output" / "task.json").write_text('{"script": "os.py", "flags": {}}')
    with pytest.raises(
        bert.UserError, match="no export, and not of a run of run_class"
    ):
        bert.load_task(tmp_path / "output")


def test_a_request_with_too_many_parts_is_refused():
    """None of them is dropped."""

    class Echo:
        parts = {"question": "text", "context": "text"}

        def predict(self, requests, batch_size):
            return requests

    task = bert.Task(Echo())
    assert task.predict([("a", "b")]) == [{"question": "a", "context": "b"}]
    for request in (("a", "b", "c"), 3):
        with pytest.raises(bert.UserError, match="it must have question, context"):
            task.predict([request])


def test_errors_name_arguments_and_not_flags(encoder, tmp_path):
    with pytest.raises(bert.UserError) as error:
        encoder.tokenize(TEXTS, max_seq_length=100000)
    assert "max_seq_length=100000" in str(error.value)
    assert "--" not in str(error.value)
    shutil.copytree(MODEL, tmp_path / "model")
    cased = tmp_path / "cased_L-12_H-768_A-12"
    shutil.copytree(MODEL, cased)
    (tmp_path / "model" / "vocab.txt").unlink()
    with pytest.raises(bert.UserError, match="no vocabulary; pass vocab_file"):
        bert.load(tmp_path / "model")
    with pytest.raises(bert.UserError, match="text; pass do_lower_case=False"):
        bert.load(cased)
    found = bert.load(cased, do_lower_case=False).tokenizer
    assert not found.settings["do_lower_case"]
    # A flag of a script is not an argument.
    with pytest.raises(bert.UserError, match="--output_dir of a --do_export run"):
        bert.load_task(cased)


def test_names_and_exports_are_told_from_folders(tmp_path):
    with pytest.raises(bert.UserError, match="hub is hf://klue/bert-base"):
        bert.load("klue/bert-base")
    (tmp_path / "export.json").write_text("{}")
    with pytest.raises(bert.UserError, match="is an export; use bert.load_task, or"):
        bert.load(tmp_path)
