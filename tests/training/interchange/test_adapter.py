"""Names of weights in both layouts: each leads to the other, whatever the architecture."""

import pytest

from training.interchange.adapter import Adapter, Pair
from training.interchange.table import ADAPTERS


class _Other(Adapter):
    """A made-up architecture whose tagger has a module of its own."""

    modules = (
        ("toy/embeddings/words", "toy.words", "embedding"),
        ("toy/layer_#/norm", "toy.layer.#.LayerNorm", "norm"),
        ("toy/layer_#/dense", "toy.layer.#.dense", "dense"),
        ("cls/predictions", "lm_head", "bias"),
        ("", "classifier", "head"),
    )
    encoder = ("toy", ("words", "layer"))
    masked_lm = "cls/predictions/output_bias"
    tied = {"lm_head.decoder.weight": ("toy/embeddings/words", "the table")}
    classes = {("cls/predictions/output_bias",): "ToyForMaskedLM", (): "ToyModel"}
    renamed = {"tagging": {"classifier": "tagger"}}


OTHER = _Other()


@pytest.mark.parametrize("names", [*ADAPTERS.values(), OTHER])
def test_each_name_leads_to_the_other_and_back(names):
    # The rest is one variable for all layers here, and one for each there.
    for pair in (p for p in names.pairs if p.released not in names.stacked):
        pair = pair._replace(
            released=pair.released.replace("#", "11".zfill(names.digits)),
            hugging_face=pair.hugging_face.replace("#", "11"),
        )
        assert names.of_released(pair.released) == pair
        assert names.of_hugging_face(pair.hugging_face) == pair


def test_kernels_are_transposed_and_nothing_else_is():
    assert {pair.released for pair in OTHER.pairs if pair.transposed} == {
        "toy/layer_#/dense/kernel"
    }
    assert OTHER.of_hugging_face("toy.layer.0.dense.weight") == Pair(
        "toy/layer_0/dense/kernel", "toy.layer.0.dense.weight", True
    )


def test_what_has_no_place_in_the_other_layout():
    assert OTHER.of_hugging_face("toy.layer.0.adapter.weight") is None
    assert OTHER.of_released("toy/layer_0/dense/kernel/adam_m") is None
    for implied in (
        "lm_head.decoder.weight",
        "toy.embeddings.position_ids",
        "embeddings.token_type_ids",
    ):
        assert OTHER.is_implied(implied), implied
    assert not OTHER.is_implied("toy.words.weight")


def test_a_heads_own_module_takes_the_place_of_the_usual_one():
    own = OTHER.of_released("output_weights", "tagging")
    assert own.hugging_face == "tagger.weight"
    assert OTHER.of_released("output_weights").hugging_face == "classifier.weight"
    assert OTHER.of_hugging_face("tagger.weight").released == "output_weights"
    # What an earlier version left beside it is not read.
    both = ["tagger.weight", "classifier.weight", "toy.words.weight"]
    assert OTHER.not_read(both) == {"classifier.weight"}
    assert OTHER.not_read(both[1:]) == set()
