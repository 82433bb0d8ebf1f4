"""ModernBERTs of transformers compute the same here, and come back bit for bit."""

import json
import random

import numpy as np
import pytest

from training.backend import tf
from training.storage.source import Source, read_config
from family.modern_bert.config import ModernBertConfig
from modeling import layers, losses
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm, tasks
from tests import peft_adapters
from tests.conversion import convert
from tests.family.modern_bert import golden, transformers_cases
from tests.family.modern_bert.test_modern_bert_encoder import LARGE
from text.tokenizers.table import TokenizerOptions
from training.interchange import hugging_face

pytestmark = pytest.mark.slow

CLOSE = 1e-5
# What follows the name of the architecture -> our network, of a number of labels.
CLASSES = {
    "Model": lambda config, _: make_encoder(config),
    "ForMaskedLM": lambda config, _: masked_lm.MaskedLM().network(config),
    "ForSequenceClassification": lambda config, n: tasks.Classification(n).network(
        config
    ),
    "ForTokenClassification": lambda config, n: tasks.Tagging(n).network(config),
    "ForQuestionAnswering": lambda config, _: tasks.Span().network(config),
    "ForMultipleChoice": lambda config, _: tasks.Choice().network(config),
}
SEEDS = range(3)


def drawn_values(their_class: str, seed: int) -> dict:
    """Of a config."""
    drawn = random.Random(f"{their_class} {seed}")
    number = 2 if their_class == "ForQuestionAnswering" else 3
    return transformers_cases.draw(drawn) | {"num_labels": number}


def make(their_class: str, values: dict, folder):
    import torch
    import transformers

    torch.manual_seed(1)
    config = transformers.ModernBertConfig(**values)
    model = getattr(transformers, f"ModernBert{their_class}")(config).eval()
    with torch.no_grad():
        for weights in model.parameters():  # biases are 0 at first, and say nothing
            weights += 0.1 * torch.randn_like(weights)
    model.save_pretrained(folder)
    return model


def rows(vocab_size: int, length: int, choices: bool = False) -> dict:
    rng = np.random.default_rng(length)
    lengths = np.array([length, length - 3, 4, length // 2])
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    ids = np.where(mask > 0, rng.integers(4, vocab_size, mask.shape), 3)
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": np.zeros_like(ids)}
    if choices:
        return {name: value.reshape(2, 2, length) for name, value in batch.items()}
    places = np.tile(np.arange(length), (len(ids), 1))
    return batch | {"masked_lm_positions": places}


def theirs(model, batch, **more):
    import torch

    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["input_mask"]}
    return model(**{k: torch.from_numpy(v) for k, v in inputs.items()}, **more)


def check_outputs(model, network, batch):
    import torch

    with torch.no_grad():
        expected = theirs(model, batch)
        if batch["input_ids"].ndim == 3:  # of which ours have no bias
            expected["logits"] -= model.classifier.bias
    ours = network(batch)
    real = batch["input_mask"] > 0
    for name, value in expected.items():
        own = {"logits": "masked_lm_logits", "last_hidden_state": "sequence_output"}
        found = np.array(ours[name] if name in ours else ours[own[name]])
        value = value.numpy()
        if value.shape[:2] == real.shape and real.ndim == 2:
            value, found = value[real], found[real]
        assert np.ptp(value)
        most = np.max(np.abs(value))
        np.testing.assert_allclose(found / most, value / most, rtol=0, atol=CLOSE)


def load(network, folder):
    encoder = getattr(network, "encoder", network)
    report = Source.open(str(folder)).load(
        {v.path: v for v in network.weights}, encoder.required_variables, encoder.scope
    )
    assert set(report.unused) <= {"output_bias"}, report  # of choices: the same for all
    return report


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("their_class", CLASSES)
def test_a_model_is_read_and_comes_back(their_class, seed, tmp_path):
    import transformers

    values = drawn_values(their_class, seed)
    model = make(their_class, values, tmp_path / "theirs")
    network = CLASSES[their_class](
        read_config(str(tmp_path / "theirs")), values["num_labels"]
    )
    load(network, tmp_path / "theirs")
    for length in (7, 61):  # below and above four windows
        batch = rows(values["vocab_size"], length, their_class == "ForMultipleChoice")
        check_outputs(model, network, batch)
    convert(input=[str(tmp_path / "theirs")], output_dir=str(tmp_path / "ours"))
    convert(
        input=[str(tmp_path / "ours")],
        output_dir=str(tmp_path / "back"),
        layout="hugging_face",
    )
    kind = getattr(transformers, f"ModernBert{their_class}")
    again, loading = kind.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not any(loading.values()), loading
    before, after = model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(bool((value == after[name]).all()) for name, value in before.items())
    before, after = (one.config.to_dict() for one in (model, again))
    ignored = {"architectures", "transformers_version", "dtype", "_name_or_path"}
    ignored |= {"id2label", "label2id", "hidden_activation", "classifier_activation"}
    for key in before.keys() - ignored:
        assert before[key] == after[key], key
    for key in ("hidden_activation", "classifier_activation"):
        spelled = {"gelu_pytorch_tanh": "gelu_new"}
        assert spelled.get(before[key], before[key]) == after[key]


@pytest.mark.parametrize("length", [150, 700])
def test_gradients_of_long_rows_with_the_released_window(length, tmp_path):
    """Also with PyTorch's own attention, which the released models run with."""
    values = drawn_values("ForMaskedLM", 0) | {
        "num_hidden_layers": 4,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "max_position_embeddings": 1024,
        "decoder_bias": True,
    }
    model = make("ForMaskedLM", values, tmp_path)
    assert model.config._attn_implementation == "sdpa"
    config = read_config(str(tmp_path))
    assert config.is_in_blocks(length) is (length == 700)
    network = masked_lm.MaskedLM().network(config)
    load(network, tmp_path)
    batch = rows(values["vocab_size"], length)
    check_outputs(model, network, batch)

    import torch

    real = batch["input_mask"]
    labels = np.where(real > 0, batch["input_ids"], -100)
    loss = theirs(model, batch, labels=torch.from_numpy(labels)).loss
    loss.backward()
    with tf.GradientTape() as tape:
        logits = network(batch)["masked_lm_logits"]
        found, weight = losses.cross_entropy(
            logits, batch["input_ids"], np.float32(real)
        )
        found /= weight
    np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(weights.grad)
    model.save_pretrained(tmp_path / "after")
    expected = hugging_face.HuggingFace(
        str(tmp_path / "after/model.safetensors")
    ).read()
    variables = {v.path: v for v in network.trainable_variables}
    gradients = tape.gradient(found, {k: v.value for k, v in variables.items()})
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        gradient = tf.convert_to_tensor(gradient).numpy()
        np.testing.assert_allclose(
            gradient, expected[name], rtol=0, atol=CLOSE, err_msg=name
        )


@pytest.mark.parametrize(("size", "values"), [("base", {}), ("large", LARGE)])
def test_released_sizes_have_as_many_parameters_as_theirs(size, values):
    import torch
    import transformers

    with torch.device("meta"):
        config = transformers.ModernBertConfig(**values)
        model = transformers.ModernBertForMaskedLM(config)
    expected = sum(p.numel() for p in model.parameters())
    with layers.shapes_only():
        network = masked_lm.MaskedLM().network(ModernBertConfig(50368, **values))
    assert sum(int(np.prod(v.shape)) for v in network.weights) == expected


def test_their_tokenizer_has_our_ids_and_rows(tmp_path):
    import transformers

    ours = TokenizerOptions().load_tokenizer(str(golden.FOLDER))
    described = ours.hugging_face()
    (tmp_path / "tokenizer.json").write_text(described.json)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described.config))
    read = transformers.AutoTokenizer.from_pretrained
    (tmp_path / "config.json").write_text('{"model_type": "modernbert"}')
    again = read(tmp_path)
    text = "the  e\u0301 [unused3] 한국어" + " " * 30
    vocabulary = ours.vocabulary
    row = [*vocabulary.head, *ours.encode(text), *vocabulary.tail]
    assert again(text)["input_ids"] == row
    pair = [*row, *ours.encode("b"), *vocabulary.tail]
    assert again(text, "b")["input_ids"] == pair
    assert again.mask_token_id == vocabulary.mask_id
    assert again("a [MASK]")["input_ids"][2] == vocabulary.mask_id


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft and transformers
def test_an_adapter_of_theirs_is_read_and_comes_back(tmp_path):
    import peft
    import torch
    import transformers

    values = drawn_values("ForSequenceClassification", 1)
    model = make("ForSequenceClassification", values, tmp_path / "base")
    torch.manual_seed(1)
    settings = peft.LoraConfig(
        r=2, lora_alpha=6, target_modules=["Wqkv", "Wi"], task_type="SEQ_CLS"
    )
    made = peft.get_peft_model(model, settings).eval()
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if "lora_B" in name:  # zeros say nothing
                weights += 0.1 * torch.randn_like(weights)
    made.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    made.save_pretrained(tmp_path / "theirs")
    network = tasks.Classification(3).network(read_config(str(tmp_path / "base")))
    load(network, tmp_path / "theirs")
    batch = rows(values["vocab_size"], 20)
    check_outputs(made, network, batch)
    peft_adapters.convert(tmp_path / "theirs", tmp_path / "back")
    base = transformers.ModernBertForSequenceClassification.from_pretrained(
        tmp_path / "base"
    )
    again = peft.PeftModel.from_pretrained(base, str(tmp_path / "back")).eval()
    with torch.no_grad():
        expected, found = (theirs(one, batch).logits.numpy() for one in (made, again))
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)
