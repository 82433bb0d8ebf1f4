"""What transformers computes of a random model, and what we compute of its folder."""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from training.storage.source import Source, read_config
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm, sentence_pairs, tasks
from tests import samples
from tests.training.interchange.transformers_configs import Case
from tests.training.interchange.transformers_rows import LENGTH
from training.interchange import hugging_face
from training.interchange.table import ADAPTERS

ROWS = 4


class Head(NamedTuple):
    """What makes our network of (config, number of labels); their outputs -> ours.

    One that `writes` has a decoder.
    """

    network: object
    outputs: Mapping[str, str]
    writes: bool = False


_BARE = Head(lambda config, _: make_encoder(config), {"pooler_output": "pooled_output"})
_WORDS = Head(
    lambda config, _: masked_lm.MaskedLM().network(config),
    {"logits": "masked_lm_logits"},
)
_LOGITS = {"logits": "logits"}
_SPANS = {"start_logits": "start_logits", "end_logits": "end_logits"}


def _both(config, _):
    return sentence_pairs.MaskedLMNextSentence().network(config)


# By the whole name of a class, or by what follows the name of its architecture.
HEADS = {
    "Model": _BARE,
    "EncoderModel": _BARE,
    "ForMaskedLM": _WORDS,
    "ForCausalLM": _WORDS,
    "LMHeadModel": _WORDS,
    "BertForPreTraining": Head(
        _both,
        {
            "prediction_logits": "masked_lm_logits",
            "seq_relationship_logits": "next_sentence_logits",
        },
    ),
    "BertForNextSentencePrediction": Head(_both, {"logits": "next_sentence_logits"}),
    "ForSequenceClassification": Head(
        lambda config, labels: tasks.Classification(labels).network(config), _LOGITS
    ),
    "ForTokenClassification": Head(
        lambda config, labels: tasks.Tagging(labels).network(config), _LOGITS
    ),
    "ForQuestionAnswering": Head(
        lambda config, _: tasks.Span().network(config), _SPANS
    ),
    "ForQuestionAnsweringSimple": Head(
        lambda config, _: tasks.Span().network(config), _SPANS
    ),
    "ForMultipleChoice": Head(
        lambda config, _: tasks.Choice().network(config), _LOGITS
    ),
} | {
    name: Head(*row)
    for name, row in samples.collect("HEADS", "transformers_cases").items()
}


def head_of(case: Case) -> Head:
    prefix = case.row.classes[0].removesuffix("Model")
    return HEADS.get(case.their_class) or HEADS[case.their_class.removeprefix(prefix)]


# --- Theirs --------------------------------------------------------------------------


def make(case: Case, folder: pathlib.Path):
    """A model of theirs with random weights, which is saved in a folder."""
    import torch
    import transformers

    torch.manual_seed(case.number)
    values = dict(case.values)
    dtype = values.pop("dtype", None)
    config = getattr(transformers, case.their_class).config_class(**values)
    model = getattr(transformers, case.their_class)(config).eval()
    with torch.no_grad():
        for weights in model.parameters():  # biases are 0 at first, and say nothing
            weights += 0.1 * torch.randn_like(weights)
    if dtype:
        model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    return model.float()


def learn_answers(
    model, case: Case, answers: Mapping[str, np.ndarray], folder: pathlib.Path
) -> tuple[float, Mapping[str, np.ndarray]]:
    """The loss of a model of theirs for questions, and its gradients by our names."""
    import torch

    rows = batch(case)
    inputs = _inputs(case, rows) | answers
    inputs = {k: torch.from_numpy(np.array(v)) for k, v in inputs.items()}
    loss = model(**inputs).loss
    loss.backward()
    with torch.no_grad():
        for weights in model.parameters():
            weights.copy_(weights.grad)
    model.save_pretrained(folder)
    return loss.item(), hugging_face.HuggingFace(
        str(folder / "model.safetensors")
    ).read()


def load(case: Case, folder: pathlib.Path):
    """What they make of a folder, and what of the weights was missing or left over."""
    import torch
    import transformers

    model, loading = getattr(transformers, case.their_class).from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32
    )
    return model.eval(), {k: v for k, v in loading.items() if v}


def batch(case: Case) -> dict[str, np.ndarray]:
    """Rows of different lengths, padded where the architecture has its padding."""
    rng = np.random.default_rng(case.number)
    values, row = case.values, case.row
    lengths = np.array([LENGTH, 3, 7, 5])
    if case.their_class in row.unpadded or values.get("summary_type") in (
        *("first", "mean"),
    ):
        lengths[:] = LENGTH  # their heads read padding
    places = np.arange(LENGTH)
    places = places[::-1] if row.pads_left else places
    mask = (places < lengths[:, None]).astype(np.int64)
    ids = rng.integers(6, values["vocab_size"], mask.shape)
    types = values.get("type_vocab_size", 2)
    segments = rng.integers(0, types, mask.shape) * mask
    found = {
        "input_ids": np.where(mask > 0, ids, values.get("pad_token_id", row.pad)),
        "input_mask": mask,
        "segment_ids": segments * _has_segments(case),
    }
    row.change_rows(case.their_class, found)
    if case.their_class.endswith(("MultipleChoice", "DoubleHeadsModel")):
        found = {key: value.reshape(2, 2, LENGTH) for key, value in found.items()}
    return found


def _has_segments(case):
    return ADAPTERS[case.architecture].config.has_segments


def _target_ids(case):
    rng = np.random.default_rng(case.number + 1)
    return rng.integers(6, case.values["vocab_size"], (ROWS, 6))


def _inputs(case, rows):
    inputs = {"input_ids": rows["input_ids"]}
    if case.row.has_mask:
        inputs["attention_mask"] = rows["input_mask"]
    if _has_segments(case):
        inputs["token_type_ids"] = rows["segment_ids"]
    return inputs | case.row.more_inputs(case.their_class, rows)


def theirs(model, case: Case) -> dict[str, np.ndarray]:
    """Their outputs for the batch, and the last hidden states."""
    import torch

    inputs = _inputs(case, batch(case))
    if head_of(case).writes:
        inputs["decoder_input_ids"] = _target_ids(case)
    inputs = {name: torch.from_numpy(np.array(v)) for name, v in inputs.items()}
    with torch.inference_mode():
        outputs = model(**inputs, output_hidden_states=True)
    kind = "decoder_" if head_of(case).writes else ""
    hidden = outputs.get(f"{kind}hidden_states") or outputs["encoder_hidden_states"]
    found = {"last_hidden_state": hidden[-1]}
    found |= {k: v for k, v in outputs.items() if hasattr(v, "numpy")}
    found = {name: value.float().numpy() for name, value in found.items()}
    if "start_top_log_probs" in found:  # which are probabilities
        found["start_top_log_probs"] = np.log(found["start_top_log_probs"])
    return found


# --- Ours ----------------------------------------------------------------------------


def ours(case: Case, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Our outputs by their names, with a network as a run would load it."""
    config = read_config(str(folder))
    head = head_of(case)
    network = head.network(config, case.values["num_labels"])
    encoder = getattr(network, "encoder", network)
    report = Source.open(str(folder)).load(
        {v.path: v for v in network.weights}, encoder.required_variables, encoder.scope
    )
    rows = batch(case)
    flat = {name: tasks.sequences(value) for name, value in rows.items()}
    encoded = encoder(flat)
    states = encoded["sequence_output"]
    has_head = case.their_class not in case.row.without_ours
    assert not has_head or set(report.unused) <= {"output_bias"}, report
    outputs = encoded
    if head.writes:
        states = network.decode(encoded, rows, _target_ids(case))["sequence_output"]
        outputs = {"": network.logits(states)}
    elif network is not encoder:
        places = np.tile(np.arange(LENGTH), (ROWS, 1))
        outputs = network(rows | {"masked_lm_positions": places})
    found = {"last_hidden_state": states}
    for name, own in head.outputs.items() if has_head else ():
        if own in outputs:
            found[name] = outputs[own]
    found = {name: np.array(value) for name, value in found.items()}
    if report.unused == ["output_bias"]:
        path = Source.open(str(folder)).prefix
        bias = hugging_face.HuggingFace(path).read(["output_bias"])["output_bias"]
        (name,) = head.outputs
        found[name] = found[name] + bias
    return found


def difference(mine: Mapping, expected: Mapping, case: Case) -> float:
    """The largest relative to the largest number of an output.

    At padding, too, unless its row says that nothing reads what is computed there.
    """
    mask = batch(case)["input_mask"].reshape(ROWS, LENGTH) > 0
    mask |= case.row.compares_padding
    differences = []
    for name, value in mine.items():
        if (head_of(case) is _BARE or head_of(case).writes) and name not in expected:
            continue  # a pooler, or logits, that their class lacks
        other = expected[name]
        value, other = (
            x.reshape(-1, *x.shape[2:]) if x.shape[:2] == (2, 2) else x
            for x in (value, other)
        )
        assert value.shape == other.shape, name
        if value.shape[:2] == mask.shape:
            value, other = value[mask], other[mask]
        assert np.ptp(other), name  # else anything were the same
        differences.append(np.max(np.abs(value - other)) / np.max(np.abs(other)))
    return float(np.max(differences))
