"""XLNet's encoder: the release's numbers, in both streams and with memory."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import create_pretraining_data
import inspect_records
import tests
from training.storage import adapters, loading
from errors import UserError
from family.xlnet.encoder import XlnetConfig
from modeling import layers
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm, tasks
from modeling.objectives.low_rank import LowRank
from tests import jobs, low_rank, relatives
from tests.modeling.test_jax_backend import check
from tests.training.interchange.hugging_face import their_config
from text.records import encoding, framing
from training.interchange import peft
from training.interchange.table import adapter_of, config_from_json

GOLDEN = tests.GOLDEN / "xlnet"
CASES = ("pretrain", "pretrain_no_mems", "pretrain_tied_relu")
SIZES = {"n_token": 32000, "d_head": 64, "ff_activation": "gelu", "untie_r": True}
BASE = SIZES | {"n_layer": 12, "d_model": 768, "n_head": 12, "d_inner": 3072}
LARGE = SIZES | {"n_layer": 24, "d_model": 1024, "n_head": 16, "d_inner": 4096}


def read_json(name):
    return json.loads((GOLDEN / name).read_text())


def read_config(case="pretrain"):
    return config_from_json(read_json(f"{case}/xlnet_config.json"))


def load(model, checkpoint="pretrain/xlnet_model.ckpt"):
    """Gives a network the weights of a released checkpoint; returns their names."""
    reader = tf.train.load_checkpoint(str(GOLDEN / checkpoint))
    names = set(reader.get_variable_to_shape_map())
    for variable in model.weights:
        if variable.path in names:
            variable.assign(reader.get_tensor(variable.path))
    return names


def inputs_of(arrays):
    """The release's arrays, whose last axis is the batch, as the inputs of ours."""
    first = {
        name.removeprefix("in/"): np.moveaxis(value, -1, 0)
        for name, value in arrays.items()
        if name.startswith("in/") and name != "in/mems"
    }
    inputs = {
        "input_ids": first["input_k"],
        "segment_ids": first["seg_id"],
        "hidden_pairs": first["perm_mask"].astype(np.int32),
        "input_q": first["input_q"],
        "target_mapping": first["target_mapping"],
    }
    if "in/mems" in arrays:
        inputs["memory"] = arrays["in/mems"].transpose(2, 0, 1, 3)
    return inputs, first["target"], first["target_mask"]


class Golden:
    """A case of the release and the same network of ours."""

    def __init__(self, name):
        run = read_json(f"{name}/run_config.json")
        clamp_len = run["clamp_len"] if run.get("clamp_len", -1) > 0 else None
        config = dataclasses.replace(read_config(name), clamp_len=clamp_len)
        self.model = masked_lm.MaskedLM().network(config)
        self.encoder = self.model.encoder
        self.names = load(self.model, f"{name}/xlnet_model.ckpt")
        with np.load(GOLDEN / name / "case.npz") as file:
            self.arrays = dict(file)
        self.inputs, self.labels, self.weights = inputs_of(self.arrays)
        self.mem_len, self.reuse_len = run["mem_len"], run["reuse_len"]

    def check(self, found, name, atol=1e-5):
        found = np.moveaxis(found, 0, 1) if np.ndim(found) > 1 else found
        expected = self.arrays[f"out/{name}"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=name)

    def without(self, *names):
        return {k: v for k, v in self.inputs.items() if k not in names}


@pytest.fixture(scope="module", params=CASES)
def golden(request):
    return Golden(request.param)


def test_both_streams_memory_loss_and_gradients_equal_the_release(golden):
    table, bias = golden.encoder.word_embeddings, golden.model.masked_lm.output_bias
    variables = [v for v in golden.model.weights if v.path in golden.names]
    assert {v.path for v in variables} == golden.names
    with tf.GradientTape() as tape:
        outputs = golden.encoder(
            golden.inputs, mem_len=golden.mem_len, reuse_len=golden.reuse_len
        )
        logits = ops.matmul(outputs["query_output"], ops.transpose(table)) + bias
        entropy = ops.sparse_categorical_crossentropy(
            golden.labels, logits, from_logits=True
        )
        loss = ops.sum(entropy * golden.weights) / np.sum(golden.weights)
    golden.check(outputs["query_output"], "query_stream")
    golden.check(outputs["sequence_output"], "content_stream")
    golden.check(logits, "lm_logits")
    golden.check(loss, "total_loss")
    for number in range(golden.encoder.config.num_hidden_layers):
        golden.check(outputs["memory"][:, number], f"new_mems_{number}")
    gradients = tape.gradient(loss, [v.value for v in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        expected = golden.arrays[f"out/grad/{variable.path}"]
        gradient = tf.convert_to_tensor(gradient)
        np.testing.assert_allclose(
            gradient, expected, rtol=0, atol=1e-6, err_msg=variable.path
        )


def test_clamped_distances_equal_the_release():
    """In the rows of text in its order, which the first half of the batch are."""
    golden = Golden("pretrain_bi_data_clamp")
    assert golden.encoder.config.clamp_len == 5
    inputs = {name: value[:2] for name, value in golden.inputs.items()}
    outputs = golden.encoder(inputs, mem_len=golden.mem_len, reuse_len=golden.reuse_len)
    found = {
        "query_stream": outputs["query_output"],
        "content_stream_inside_two_stream": outputs["sequence_output"],
        "new_mems_0": outputs["memory"][:, 0],
        "new_mems_1": outputs["memory"][:, 1],
    }
    for name, value in found.items():
        expected = np.moveaxis(golden.arrays[f"out/{name}"], 1, 0)[:2]
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5, err_msg=name)


def test_one_stream_alone_equals_the_release(golden):
    both = golden.encoder(golden.without("target_mapping"))
    golden.check(both["query_output"], "query_stream_no_target_mapping")
    one = golden.without("target_mapping", "input_q")
    golden.check(golden.encoder(one)["sequence_output"], "content_stream")
    for name, output in (
        ("segment_ids", "content_stream_no_segments"),
        ("hidden_pairs", "content_stream_no_perm_mask"),
    ):
        found = golden.encoder({k: v for k, v in one.items() if k != name})
        golden.check(found["sequence_output"], output)


@pytest.fixture(scope="module")
def encoder():
    encoder = make_encoder(read_config())
    load(encoder)
    return encoder


def test_on_which_side_padding_is_does_not_matter(encoder):
    """As only distances count: the release pads rows for tasks on the left."""
    row, pads = np.arange(10, 17)[None], np.zeros((1, 4), int)
    segments = np.array([[0, 0, 0, 1, 1, 1, 2]])
    whole = encoder({"input_ids": row, "segment_ids": segments})
    for order in ((pads, row), (row, pads)):
        ids = np.concatenate(order, axis=1)
        found = encoder(
            {
                "input_ids": ids,
                "input_mask": (ids > 0).astype(np.int32),
                "segment_ids": np.concatenate(
                    [segments if part is row else pads + 4 for part in order], axis=1
                ),
            }
        )
        np.testing.assert_allclose(
            found["sequence_output"][ids > 0], whole["sequence_output"][0], atol=1e-5
        )
    # The last of them is what heads for rows read.
    np.testing.assert_allclose(
        found["pooled_output"], whole["pooled_output"], atol=1e-5
    )
    mask = (ids > 0).astype(np.int32)
    np.testing.assert_allclose(
        encoder.pool(found, mask), whole["pooled_output"], atol=1e-5
    )


@pytest.mark.parametrize(("keys", "number"), [(BASE, 116718336), (LARGE, 360268800)])
def test_the_released_sizes(keys, number):
    with layers.shapes_only():
        encoder = make_encoder(config_from_json(keys))
        summary = sum(np.prod(v.shape) for v in encoder.summary.weights)
        assert sum(np.prod(v.shape) for v in encoder.weights) == number + summary


def test_what_a_checkpoint_to_start_from_may_lack(encoder):
    lacking = {v.path for v in encoder.weights} - set(encoder.required_variables)
    assert lacking == {
        "model/transformer/mask_emb/mask_emb",
        "model/sequnece_summary/summary/kernel",
        "model/sequnece_summary/summary/bias",
    }


def test_the_eight_keys_of_the_release_and_ours():
    config = config_from_json(BASE)
    assert type(config) is XlnetConfig
    assert (config.hidden_size, config.num_hidden_layers) == (768, 12)
    assert json.loads(config.to_json_string()) == BASE | {"architecture": "xlnet"}
    ours = dataclasses.replace(config, clamp_len=9, hidden_dropout_prob=0.0)
    written = json.loads(ours.to_json_string())
    assert written == json.loads(config.to_json_string()) | {
        "clamp_len": 9,
        "hidden_dropout_prob": 0.0,
    }
    assert config_from_json(written) == ours


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": None}, "missing key 'n_layer'"),
        ({"d_modle": 3}, "unknown key 'd_modle'; did you mean 'd_model'"),
        ({"n_head": 0}, "n_head is 0; it must be above 0"),
        ({"d_model": 33}, "d_model is 33; it must be even"),
        ({"ff_activation": "swish"}, "ff_activation is 'swish'.*one of gelu"),
        ({"untie_r": 1}, "untie_r is 1; it must be of type bool"),
    ],
)
def test_configs_that_are_refused(change, message):
    values = {k: v for k, v in (BASE | change).items() if v is not None}
    with pytest.raises(ValueError, match=message):
        config_from_json(values)


THEIRS = {
    "model_type": "xlnet",
    "vocab_size": 48,
    "d_model": 32,
    "n_layer": 2,
    "n_head": 4,
    "d_inner": 64,
    "ff_activation": "gelu",
    "dropout": 0.2,
    "clamp_len": -1,
}


def test_hugging_face_s_config():
    config = config_from_json(THEIRS)
    assert config.hidden_act == "gelu_erf"  # theirs is the exact one
    assert (config.head_size, config.clamp_len, config.untie_r) == (8, None, True)
    assert config.attention_probs_dropout_prob == config.hidden_dropout_prob == 0.2
    assert config_from_json(their_config(config)) == config
    for change, message in (
        ({"bi_data": True}, "bi_data is True, but must be False"),
        ({"attn_type": "uni"}, "attn_type is 'uni'"),
        ({"ff_activation": "silu"}, "ff_activation is 'silu'"),
    ):
        with pytest.raises(ValueError, match=message):
            config_from_json(THEIRS | change)
    with pytest.raises(ValueError, match="d_head is 9; in Hugging Face's xlnet, 4"):
        their_config(dataclasses.replace(config, head_size=9))


# --- Its network needs no TensorFlow: the same numbers on Keras's JAX backend --------


@pytest.mark.exhaustive
def test_jax_equals_the_release_without_tensorflow():
    check("tests/family/xlnet/xlnet_on_jax.py")


# --- --lora_rank reaches an XLNet's attention, whose kernels have three axes ---------


CONFIG = relatives.CONFIGS["xlnet"]
LAYER = "model/transformer/layer_{}/"


@pytest.mark.exhaustive
def test_a_run_adapts_queries_and_values(tmp_path, untraced):
    start = relatives.classifier_from_a_start(tmp_path, CONFIG, **low_rank.SHORT)
    found = [f"{LAYER.format(n)}rel_attn/{name}" for n in (0, 1) for name in "qv"]
    low_rank.check_run(tmp_path, lambda **flags: start(tmp_path, **flags), found)


def test_every_kernel_changes_by_the_product_that_a_layer_adds():
    targets = [*"qkvro", "layer_1", "layer_2"]
    task = tasks.Classification(2)
    objective = LowRank(task, rank=3, alpha=6.0, targets=targets)
    objective.check(CONFIG)
    adapted = objective.network(CONFIG, seed=3)
    rng = np.random.default_rng(0)
    ids = {"input_ids": rng.integers(0, 9, (2, 5)).astype(np.int32)}
    plain = task.network(CONFIG, seed=3)
    np.testing.assert_array_equal(adapted(ids)["logits"], plain(ids)["logits"])
    own = [v for v in adapted.weights if loading.is_adapter(v.path)]
    assert len(own) == 2 * 2 * len(targets)
    for variable in own:
        variable.assign_add(rng.normal(scale=0.1, size=variable.shape))
    merged = adapters.without({v.path: v for v in adapted.weights}, 6.0)
    for variable in plain.weights:
        variable.assign(merged[variable.path])
    expected = plain(ids)["logits"]
    np.testing.assert_allclose(adapted(ids)["logits"], expected, atol=1e-5)


def test_inputs_meet_what_is_drawn():
    config = relatives.CONFIGS["xlnet"]
    objective = LowRank(tasks.Classification(2), rank=2, alpha=2.0, targets=["q", "o"])
    weights = {v.path: v.numpy() for v in objective.network(config).weights}
    for name, drawn, zero in (("q", "a", "b"), ("o", "b", "a")):
        path = f"{LAYER.format(0)}rel_attn/{name}/lora_kernel_"
        assert not np.any(weights[path + zero])
        assert 0.5 * 0.25 < np.abs(weights[path + drawn]).max() <= 0.25  # 1 / sqrt(16)


def test_peft_has_no_such_adapters_of_attention(tmp_path):
    """In Hugging Face's class they are parameters, whose stacks of matrices it changes."""
    objective = LowRank(tasks.Classification(2), rank=2, alpha=2.0, targets=["q"])
    made = objective.network(CONFIG)
    tensors = {v.path: v.numpy() for v in made.trainable_variables}
    whole = adapters.without({v.path: v for v in made.weights}, 2.0)
    with pytest.raises(UserError, match="q/kernel: no module in Hugging Face"):
        peft.write(
            *(str(tmp_path), tensors, whole, adapter_of(CONFIG)),
            base="base",
            alpha=2.0,
            task={},
        )
    assert not list(tmp_path.iterdir())


# Every kind of rows with a vocabulary whose rows end with [CLS], written and inspected.


MODEL = str(tests.GOLDEN / "sentencepiece" / "xlnet.model")
PAD, CLS, SEP, EOD = 5, 3, 4, 7


KINDS = ["pairs dynamic", "pairs static", "full_sentences dynamic"]
KINDS += ["doc_sentences static", "sentence_order static", "electra dynamic"]


@pytest.mark.parametrize("kind", KINDS)
def test_records_are_sound(tmp_path, capsys, kind):
    instances, masking = kind.split()
    lines = (tests.GOLDEN / "pretraining" / "corpus.txt").read_text().splitlines()
    text = [line if number % 40 else "" for number, line in enumerate(lines[:240])]
    (tmp_path / "text.txt").write_text("\n".join(text))
    records = str(tmp_path / "out.tfrecord")
    jobs.run(
        create_pretraining_data,
        {
            "input_file": [str(tmp_path / "text.txt")],
            "output_file": [records],
            "vocab_file": MODEL,
            "instances": instances,
            "masking": masking,
            "do_whole_word_mask": True,
            "max_seq_length": 128,
            "max_predictions_per_seq": 20,
            "dupe_factor": 1,
            "num_workers": 1,
        },
    )
    capsys.readouterr()
    jobs.run(inspect_records, {"input_file": [records], "vocab_file": MODEL})
    assert "no problems found" in capsys.readouterr().out
    examples = list(framing.read(records))
    batch = encoding.decode(examples, encoding.schema_of(examples[0]))[0]
    ids, segments = batch["input_ids"], batch["segment_ids"]
    lengths = batch["input_mask"].sum(axis=1)
    rows = np.arange(len(ids))
    assert (ids[rows, lengths - 1] == CLS).all()
    assert (ids[rows, lengths - 2] == SEP).all()
    assert (segments[rows, lengths - 1] == 2).all()
    assert (ids[np.arange(128) >= lengths[:, None]] == PAD).all()
    if masking == "dynamic":  # static masks may put any token in the place of another
        assert (ids == CLS).sum() == len(ids)
        assert (ids == EOD).any() == (instances == "full_sentences")
    if instances not in ("full_sentences", "doc_sentences"):
        assert (segments == 1).any()
