"""Sentence vectors, their losses and gradients are those of sentence-transformers."""

import functools
import json

import numpy as np
import pytest

import bert
from training.backend import tf
from training.storage.source import Source, read_config
from modeling import layers, vector_losses
from modeling.objectives.sentence_vectors import OUTPUT, SentenceVectors
from tests import tiny
from tests.conversion import convert

pytestmark = pytest.mark.slow

WORDS = [*"abcdefghijklmnop"]
CONFIG = tiny.config(
    vocab_size=5 + len(WORDS),
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=16,
)
ROWS = 6
POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "last": "lasttoken",
    "max": "max",
    "weighted_mean": "weightedmean",
}


def encoder_of_theirs(folder):
    """A random BertModel with its tokenizer, saved in a folder."""
    import torch
    import transformers

    tiny.write(folder, WORDS, CONFIG)
    sizes = {k: v for k, v in json.loads(CONFIG.to_json_string()).items()}
    torch.manual_seed(1)
    model = transformers.BertModel(transformers.BertConfig(**sizes))
    with torch.no_grad():
        for weights in model.parameters():
            weights += 0.1 * torch.randn_like(weights)
    model.save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return encoder_of_theirs(tmp_path_factory.mktemp("encoder"))


def theirs(folder, pooling="mean", normalized=True):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    encoder = modules.Transformer(str(folder), max_seq_length=12)
    pooled = modules.Pooling(CONFIG.hidden_size, pooling_mode=POOLINGS[pooling])
    return SentenceTransformer(
        modules=[encoder, pooled, *([modules.Normalize()] * normalized)], device="cpu"
    )


def rows(number):
    """`number` texts in each row, of different lengths: ids and a mask, [b, n, s]."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(3, 9, (ROWS, number))
    mask = (np.arange(9) < lengths[..., None]).astype(np.int32)
    ids = rng.integers(5, CONFIG.vocab_size, mask.shape) * mask
    return {
        "input_ids": ids.astype(np.int32),
        "input_mask": mask,
        "segment_ids": np.zeros_like(mask),
        "text_keys": np.arange(1, ROWS * number + 1, dtype=np.int32).reshape(ROWS, -1),
        "scores": rng.uniform(size=ROWS).astype(np.float32),
    }


def network_and_gradients(folder, objective, batch):
    """Our vectors, loss and gradients by the released names, with the folder's weights."""
    network = objective.network(read_config(str(folder)))
    by_path = {v.path: v for v in network.weights}
    encoder = network.encoder
    Source.open(str(folder)).load(by_path, encoder.required_variables, encoder.scope)
    variables = network.trainable_variables
    with tf.GradientTape() as tape:
        outputs = network(batch, dropouts=layers.Dropouts([0, 0]))
        total, weight = objective.losses(batch, outputs)["loss"]
        loss = total / weight
    gradients = tape.gradient(loss, [v.value for v in variables])
    named = zip((v.path for v in variables), gradients, strict=True)
    gradients = {n: tf.convert_to_tensor(g).numpy() for n, g in named if g is not None}
    return outputs[OUTPUT].numpy(), loss.numpy(), gradients


def their_gradients(model, folder):
    """Theirs by our names: they are saved in the place of the weights."""
    import torch

    encoder = model[0].auto_model
    with torch.no_grad():
        for weights in encoder.parameters():
            gradient = weights.grad
            weights.copy_(torch.zeros_like(weights) if gradient is None else gradient)
    encoder.save_pretrained(folder)
    return Source.open(str(folder)).read()


def features(batch):
    import torch

    return [
        {
            "input_ids": torch.from_numpy(batch["input_ids"][:, i].astype(np.int64)),
            "attention_mask": torch.from_numpy(
                batch["input_mask"][:, i].astype("int64")
            ),
        }
        for i in range(batch["input_ids"].shape[1])
    ]


in_batch = functools.partial(
    vector_losses.in_batch_negatives, temperature=0.05, symmetric=False
)
# Ours, whether of the whole batch, how many texts a row has, theirs and its arguments.
LOSSES = {
    "in batch": (in_batch, 2, "MultipleNegativesRankingLoss", {}),
    "hard negatives": (in_batch, 4, "MultipleNegativesRankingLoss", {"scale": 20.0}),
    "symmetric": (
        functools.partial(in_batch, symmetric=True),
        3,
        "MultipleNegativesRankingLoss",
        {
            "directions": ("query_to_doc", "doc_to_query"),
            "partition_mode": "per_direction",
        },
    ),
    "triplets": (
        functools.partial(vector_losses.triplet_margin, margin=0.3, normalized=True),
        3,
        "TripletLoss",
        {"distance_metric": lambda a, b: 1 - _cosines(a, b), "triplet_margin": 0.3},
    ),
    "distances": (
        functools.partial(vector_losses.triplet_margin, margin=5.0, normalized=False),
        3,
        "TripletLoss",
        {},
    ),
    "cosine": (vector_losses.cosine_error, 2, "CosineSimilarityLoss", {}),
    "cosent": (
        functools.partial(vector_losses.cosent, temperature=0.05),
        2,
        "CoSENTLoss",
        {},
    ),
}


def _cosines(a, b):
    import torch

    return torch.nn.functional.cosine_similarity(a, b)


# They normalize what they cut, so that distances are not compared with widths.
CASES = [(name, ()) for name in LOSSES]
CASES += [(name, (4, 8)) for name in LOSSES if name != "distances"]


@pytest.mark.parametrize(("name", "widths"), CASES)
def test_loss_and_gradients_are_theirs(folder, tmp_path, name, widths):
    import torch
    from sentence_transformers.sentence_transformer import losses

    ours, number, their_class, settings = LOSSES[name]
    normalized = name != "distances"
    batch = rows(number)
    objective = SentenceVectors(
        ours,
        of_whole_batch=False,
        metric="",
        normalized=normalized,
        widths=widths,
    )
    _, loss, gradients = network_and_gradients(folder, objective, batch)
    model = theirs(folder, normalized=normalized)
    their_loss = getattr(losses, their_class)(model, **settings)
    if widths:
        sizes = [CONFIG.hidden_size, *widths]
        their_loss = losses.MatryoshkaLoss(model, their_loss, sizes)
    expected = their_loss(features(batch), torch.from_numpy(batch["scores"]))
    expected.backward()
    np.testing.assert_allclose(loss, expected.item(), rtol=1e-5)
    expected = their_gradients(model, tmp_path)
    largest = max(np.abs(value).max() for value in gradients.values())
    assert largest > 1e-3
    for path, value in gradients.items():
        np.testing.assert_allclose(
            value, expected[path], atol=1e-5 * max(1.0, largest), err_msg=path
        )


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("normalized", [True, False])
def test_vectors_are_theirs(folder, pooling, normalized):
    import torch

    batch = rows(2)
    objective = SentenceVectors(
        vector_losses.cosine_error,
        of_whole_batch=False,
        metric="",
        pooled_by=pooling,
        normalized=normalized,
    )
    vectors, *_ = network_and_gradients(folder, objective, batch)
    model = theirs(folder, pooling, normalized)
    with torch.inference_mode():
        for i, texts in enumerate(features(batch)):
            expected = model(texts)["sentence_embedding"].numpy()
            np.testing.assert_allclose(vectors[:, i], expected, atol=1e-5)


# --- Folders -------------------------------------------------------------------------

TEXTS = ["a b c", "d", "e f g h i j k l m n o p a b c d", ""]


def with_layer(model, size, activation):
    """A linear layer after the pooling."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    torch.manual_seed(2)
    layer = modules.Dense(CONFIG.hidden_size, size, activation_function=activation)
    encoder, pooled, *rest = model
    return SentenceTransformer(modules=[encoder, pooled, layer, *rest], device="cpu")


@pytest.mark.parametrize("kind", ["plain", "tanh", "identity"])
def test_their_folders_give_their_vectors_and_ours_are_loaded_by_them(
    folder, tmp_path, kind
):
    import torch
    from sentence_transformers import SentenceTransformer

    pooling, normalized = ("mean", True) if kind == "plain" else ("cls", False)
    model = theirs(folder, pooling, normalized)
    if kind != "plain":
        activation = {"tanh": torch.nn.Tanh(), "identity": torch.nn.Identity()}[kind]
        model = with_layer(model, 7, activation)
    model.prompts = {"query": "a d ", "document": "b "}
    model.save(str(tmp_path / "theirs"))
    queries = model.encode(TEXTS, prompt_name="query")
    passages = model.encode(TEXTS, prompt_name="document")
    encoder = bert.load(str(tmp_path / "theirs"))
    found = encoder.embed(TEXTS, are_queries=True)
    np.testing.assert_allclose(found, queries, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(TEXTS), passages, atol=1e-5)
    bert.save(encoder, str(tmp_path / "ours"), layout="sentence_transformers")
    again = SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    found = again.encode(TEXTS, prompt_name="query")
    np.testing.assert_allclose(found, queries, atol=1e-5)
    # Our own layout keeps it all, too.
    bert.save(encoder, str(tmp_path / "release"))
    again = bert.load(str(tmp_path / "release"))
    np.testing.assert_array_equal(again.embed(TEXTS), encoder.embed(TEXTS))
    convert(
        tmp_path / "release", tmp_path / "converted", layout="sentence_transformers"
    )
    again = SentenceTransformer(str(tmp_path / "converted"), device="cpu")
    found = again.encode(TEXTS, prompt_name="document")
    np.testing.assert_allclose(found, passages, atol=1e-5)


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"all": "a d "}, "all"),
        ({"query": "b ", "all": "a d "}, "all"),
        ({"query": "b ", "corpus": "a d "}, None),
        ({"query": "b ", "document": "", "passage": "a d "}, None),
    ],
)
def test_queries_and_passages_have_their_prompts(folder, tmp_path, prompts, default):
    model = theirs(folder)
    model.prompts, model.default_prompt_name = prompts, default
    model.save(str(tmp_path / "theirs"))
    encoder = bert.load(str(tmp_path / "theirs"))
    for are_queries, encode in (
        (True, model.encode_query),
        (False, model.encode_document),
    ):
        found = encoder.embed(TEXTS, are_queries=are_queries)
        np.testing.assert_allclose(found, encode(TEXTS), atol=1e-5)


def test_what_has_no_equivalent_is_refused(folder, tmp_path):
    import torch

    model = with_layer(theirs(folder), 7, torch.nn.ReLU())
    model.save(str(tmp_path / "model"))
    with pytest.raises(bert.UserError, match="the layer has ReLU, which has no"):
        bert.load(str(tmp_path / "model"))
    (tmp_path / "model" / "modules.json").write_text('[{"type": "x.CNN", "path": ""}]')
    with pytest.raises(bert.UserError, match="modules.json: has CNN; only Transformer"):
        bert.load(str(tmp_path / "model"))
