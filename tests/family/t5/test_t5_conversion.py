"""T5's files: mesh_tensorflow's names and Hugging Face's, read and written bit for bit."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from training.storage.source import Source, read_config
from errors import UserError
from modeling.architectures.table import make_encoder
from tests import jobs
from tests.conversion import convert
from tests.family.t5 import t5
from training.interchange import hugging_face


def by_name(source):
    return Source.open(str(source)).read()


@pytest.mark.parametrize("version", t5.VERSIONS)
def test_a_model_goes_through_both_layouts_bit_for_bit(tmp_path, version):
    source, expected = str(t5.GOLDEN / version), t5.weights(version)
    for layout in ("release", "hugging_face"):
        convert(source, tmp_path / layout, layout=layout)
        source = str(tmp_path / layout)
        found = by_name(source)
        jobs.check_same_bits(found, expected)
        assert read_config(source) == t5.read_config(version)
    theirs = load_file(t5.GOLDEN / version / "model.safetensors")
    found = load_file(tmp_path / "hugging_face" / "model.safetensors")
    jobs.check_same_bits(found, theirs)
    said = json.loads((t5.GOLDEN / version / "config.json").read_text())
    written = json.loads((tmp_path / "hugging_face" / "config.json").read_text())
    own = {"scale_decoder_outputs", "tie_word_embeddings"}
    for name, value in written.items():
        assert name in own or said[name] == value, name
    # transformers 4 reads the one, transformers 5 the other.
    assert written["tie_word_embeddings"] is (version == "v1_0")
    assert written["scale_decoder_outputs"] is (version == "v1_0")


def test_weights_that_a_file_repeats_must_be_equal(tmp_path):
    tied, own = (
        load_file(t5.GOLDEN / version / "model.safetensors") for version in t5.VERSIONS
    )
    shutil.copy(t5.GOLDEN / "v1_0" / "config.json", tmp_path)
    path, table = tmp_path / "model.safetensors", tied["shared.weight"]
    both = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    same = dict.fromkeys(both, table) | {"lm_head.weight": table}
    save_file(tied | {name: value.copy() for name, value in same.items()}, path)
    convert(tmp_path, tmp_path / "found")
    assert by_name(tmp_path / "found").keys() == t5.weights("v1_0").keys()
    save_file(tied | {both[1]: table + 1}, path)
    with pytest.raises(UserError, match="decoder.embed_tokens.weight differs from the"):
        convert(tmp_path, tmp_path / "no")
    # transformers 5 always says that they are tied; the file decides.
    save_file(tied | {"lm_head.weight": own["lm_head.weight"]}, path)
    with pytest.raises(UserError, match="lm_head.* set tie_word_embeddings to false"):
        convert(tmp_path, tmp_path / "no")
    # The encoder alone has no logits.
    encoder = make_encoder(t5.read_config("v1_0"))
    hugging_face.HuggingFace(str(path)).read(
        [variable.path for variable in encoder.weights]
    )


def test_an_encoder_alone(tmp_path):
    config = t5.read_config("v1_1")
    names = {variable.path for variable in make_encoder(config).weights}
    tensors = {k: v for k, v in t5.weights("v1_1").items() if k in names}
    hugging_face.write(str(tmp_path / "theirs"), tensors, config)
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["architectures"] == ["T5EncoderModel"]
    convert(tmp_path / "theirs", tmp_path / "ours")
    assert by_name(tmp_path / "ours").keys() == names
    head = {"output_weights": np.ones((2, 32), np.float32)}
    head["output_bias"] = np.ones(2, np.float32)
    with pytest.raises(
        UserError, match="no head for classification like this one; use"
    ):
        hugging_face.write(str(tmp_path / "no"), tensors | head, config)


def test_a_v1_1_without_its_logits_is_incomplete(tmp_path):
    theirs = load_file(t5.GOLDEN / "v1_1" / "model.safetensors")
    del theirs["decoder.final_layer_norm.weight"]
    shutil.copy(t5.GOLDEN / "v1_1" / "config.json", tmp_path)
    save_file(theirs, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="not in the checkpoint: decoder/final_layer_n"):
        convert(tmp_path, tmp_path / "no")


def test_logits_that_share_the_table_and_are_not_scaled(tmp_path):
    """What transformers 5 makes from scratch with v1.1's tie_word_embeddings=False."""
    theirs = load_file(t5.GOLDEN / "v1_1" / "model.safetensors")
    del theirs["lm_head.weight"]
    save_file(theirs, tmp_path / "model.safetensors")
    said = json.loads((t5.GOLDEN / "v1_1" / "config.json").read_text())
    said |= {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    (tmp_path / "config.json").write_text(json.dumps(said))
    convert(tmp_path, tmp_path / "ours")
    found = by_name(tmp_path / "ours")
    assert found.keys() == t5.weights("v1_1").keys()
    np.testing.assert_array_equal(
        found["decoder/logits/kernel"], theirs["shared.weight"].T
    )
    assert not read_config(str(tmp_path / "ours")).scales_outputs
    # An encoder alone still has no logits, nor a model that does not say so.
    encoder = {k: v for k, v in theirs.items() if not k.startswith("decoder.")}
    save_file(encoder, tmp_path / "model.safetensors")
    convert(tmp_path, tmp_path / "encoder")
    assert by_name(tmp_path / "encoder").keys() == {
        v.path for v in make_encoder(t5.read_config("v1_1")).weights
    }
    save_file(theirs, tmp_path / "model.safetensors")
    said["tie_word_embeddings"] = False
    (tmp_path / "config.json").write_text(json.dumps(said))
    with pytest.raises(UserError, match="not in the checkpoint: decoder/logits/kernel"):
        convert(tmp_path, tmp_path / "no")


def test_layers_cannot_be_left_out(tmp_path):
    source = str(t5.GOLDEN / "v1_0")
    with pytest.raises(UserError, match="'t5' are those of an encoder and of a"):
        convert(source, tmp_path / "no", keep_layers=[0])


def test_rows_are_added(tmp_path):
    """Sentinels of a vocabulary of one's own, for example."""
    for version in t5.VERSIONS:
        source, target = str(t5.GOLDEN / version), str(tmp_path / version)
        convert(source, target, vocab_size=72)
        found, expected = by_name(target), t5.weights(version)
        table = found.pop("shared/embedding")
        np.testing.assert_array_equal(table[:64], expected.pop("shared/embedding"))
        assert 0.7 < table[64:].std() < 1.3
        if version == "v1_1":
            kernel = found.pop("decoder/logits/kernel")
            np.testing.assert_array_equal(
                kernel[:, :64], expected.pop("decoder/logits/kernel")
            )
            assert kernel.shape == (32, 72)
        assert all(np.array_equal(found[n], value) for n, value in expected.items())
