"""A T5's adapters that go to peft and come from it give the same logits there and here."""

import dataclasses
import os

import numpy as np
import pytest

from training.storage.source import Source
from family.t5.text_to_text import TextToText
from tests import peft_adapters
from tests.family.t5 import runs
from training.interchange import hugging_face

pytestmark = [
    pytest.mark.slow,
    # Between versions of peft and transformers.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
CLOSE = 2e-6  # of the largest
RNG = np.random.default_rng(2)
INPUTS = {
    "input_ids": RNG.integers(5, 18, (3, 9)).astype(np.int32),
    "input_mask": np.array([[1] * 9, [1] * 6 + [0] * 3, [1] * 9], np.int32),
}
WRITTEN = RNG.integers(5, 18, (3, 7)).astype(np.int32)
KINDS = {
    "v1_0": {},
    "v1_1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


@pytest.fixture(autouse=True)
def needs_peft():
    if os.environ.get("ORACLES") != "required":
        pytest.importorskip("peft")


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    """The config, and the folder of a base in Hugging Face's layout."""
    config = dataclasses.replace(runs.TINY, **KINDS[request.param])
    network = TextToText().network(config, seed=3)
    weights = {v.path: v.numpy() for v in network.weights}
    hugging_face.write(str(tmp_path / "base"), weights, config)
    return config, tmp_path


def base(folder):
    import transformers

    return transformers.T5ForConditionalGeneration.from_pretrained(folder / "base")


def theirs(model):
    import torch

    given = {
        "input_ids": INPUTS["input_ids"],
        "attention_mask": INPUTS["input_mask"],
        "decoder_input_ids": WRITTEN,
    }
    with torch.inference_mode():
        inputs = {k: torch.from_numpy(v.astype(np.int64)) for k, v in given.items()}
        return model.eval()(**inputs).logits.numpy()


def ours(config, path):
    """The logits of a network with the weights of a checkpoint."""
    network = TextToText().network(config, seed=5)
    Source.open(str(path)).load({v.path: v for v in network.weights}, required="")
    hidden = network.decode(network.encode(INPUTS), INPUTS, WRITTEN)
    return np.array(network.logits(hidden["sequence_output"]))


def check_close(found, expected):
    np.testing.assert_allclose(found, expected, atol=CLOSE * np.abs(expected).max())


def test_what_we_train_has_the_same_logits_there(kind):
    import peft

    config, folder = kind
    inner = ["wi_0", "wi_1"] if config.is_gated else ["wi"]
    peft_adapters.write_run(folder, TextToText(), config, [*"qkvo", *inner, "wo"])
    peft_adapters.convert(folder / "output", folder / "ours")
    whole = peft.PeftModel.from_pretrained(base(folder), str(folder / "ours"))
    assert type(whole) is peft.PeftModelForSeq2SeqLM
    found = ours(config, folder / "output")
    check_close(found, theirs(whole))
    check_close(ours(config, folder / "ours"), found)
    assert np.abs(found - theirs(base(folder))).max() > 0.01 * np.abs(found).max()


@pytest.mark.parametrize("targets", [None, ["SelfAttention.k", "EncDecAttention.o"]])
def test_an_adapter_of_theirs_is_read_and_comes_back(kind, targets):
    import peft
    import torch

    config, folder = kind
    torch.manual_seed(1)
    settings = peft.LoraConfig(
        r=3, lora_alpha=6, target_modules=targets, task_type="SEQ_2_SEQ_LM"
    )
    made = peft.get_peft_model(base(folder), settings)
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if "lora_B" in name:  # zeros say nothing
                weights += 0.1 * torch.randn_like(weights)
    made.save_pretrained(folder / "theirs")
    expected = theirs(made)
    check_close(ours(config, folder / "theirs"), expected)
    peft_adapters.convert(folder / "theirs", folder / "back")
    again = peft.PeftModel.from_pretrained(base(folder), str(folder / "back"))
    check_close(theirs(again), expected)
