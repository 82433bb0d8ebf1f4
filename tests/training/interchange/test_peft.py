"""Adapters in the files of Hugging Face's peft, without it."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import run_classifier
from training.run import settle
from training.storage.source import Source, read_config
from errors import UserError
from modeling.objectives import tasks
from tests import jobs, peft_adapters
from training.interchange import peft
from training.interchange.table import adapter_of

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


@pytest.fixture(scope="module", params=peft_adapters.CONFIGS)
def adapted(request, tmp_path_factory):
    """The architecture, and the folder of a base and its adapter."""
    folder = tmp_path_factory.mktemp(request.param)
    peft_adapters.write_base(folder, request.param)
    peft_adapters.make(folder, request.param)
    peft_adapters.convert(folder / "output", folder / "ours")
    return request.param, folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    peft_adapters.write_base(folder, "bert")
    peft_adapters.make(folder, "bert")
    peft_adapters.convert(folder / "output", folder / "ours")
    return folder


@pytest.fixture
def bert(made, tmp_path):
    """The folder of an adapter, to be changed."""
    return shutil.copytree(made / "ours", tmp_path / "ours")


def stored(folder):
    return safetensors.numpy.load_file(folder / WEIGHTS)


def config(folder, **changes):
    """Of an adapter, after some changes."""
    path = folder / CONFIG
    values = json.loads(path.read_text()) | changes
    if changes:
        path.write_text(json.dumps(values))
    return values


def read(folder):
    return Source.open(str(folder)).read()


def names_in(folder):
    """The names in a file, without what peft puts before them."""
    return {name.removeprefix("base_model.model.") for name in stored(folder)}


def test_files_are_named_as_pefts_and_come_back_as_they_were(adapted):
    kind, folder = adapted
    tensors, row = stored(folder / "ours"), peft_adapters.ROWS[kind]
    modules = [row.module.format(kind).replace("#", number) for number in "01"]
    for name, width in row.targets.items():
        module = f"base_model.model.{modules[1]}{name}"
        assert tensors[f"{module}.lora_A.weight"].shape == (2, 16)
        assert tensors[f"{module}.lora_B.weight"].shape == (width, 2)
    others = {name for name in names_in(folder / "ours") if "lora" not in name}
    assert (
        {name.removesuffix(".bias") for name in others if ".bias" in name}
        <= {*row.head}
        == {name.removesuffix(".weight") for name in others if ".weight" in name}
    )
    said = config(folder / "ours")
    assert said["r"] == 2 and said["lora_alpha"] == 4
    assert said["target_modules"] == [
        f"{m}{name}" for m in modules for name in row.targets
    ]
    assert said["modules_to_save"] == list(row.saved)
    assert said["task_type"] == "SEQ_CLS"
    assert said["base_model_name_or_path"] == str(folder / "base")
    # Read with its base, it is the model that was trained.
    found, whole = read(folder / "ours"), read(folder / "output")
    assert found and not any("lora" in name for name in found)
    jobs.check_same_bits(found, {name: whole[name] for name in found})
    assert set(whole) - set(found) == {"global_step", "output_weights/adam_m"}


def test_an_adapter_of_peft_can_be_written_again(adapted, tmp_path):
    _, folder = adapted
    peft_adapters.convert(folder / "ours", tmp_path / "again")
    for name in (WEIGHTS, CONFIG):
        again = (tmp_path / "again" / name).read_bytes()
        assert again == (folder / "ours" / name).read_bytes(), name


def test_the_config_is_that_of_the_base_with_the_adapters_head(adapted):
    kind, folder = adapted
    found = read_config(str(folder / "ours"))
    assert found == read_config(str(folder / "output"))
    network = tasks.Classification(2).network(found)
    variables = {v.path: v for v in network.weights}
    report = Source.open(str(folder / "ours")).load(variables, required="")
    assert not report.unused
    # That of the base is not enough for a class with a head of two layers.
    bare = read_config(str(folder / "base"))
    network = tasks.Classification(2).network(bare)
    variables = {v.path: v for v in network.weights}
    missing = peft_adapters.ROWS[kind].missing
    if not missing:
        assert Source.open(str(folder / "ours")).load(variables, required="")
        return
    with pytest.raises(UserError, match=f"head also consists of {missing}"):
        Source.open(str(folder / "ours")).load(variables)
    # The encoder alone may be used for anything.
    encoder = {v.path: v for v in network.encoder.weights}
    assert "output_weights" in Source.open(str(folder / "ours")).load(encoder).unused


def test_adapters_of_an_encoder_alone_are_of_their_bases_architecture(
    adapted, tmp_path
):
    """Whose names in Hugging Face's layout are those of several."""
    kind, folder = adapted
    base, ours = tmp_path / "base", tmp_path / "ours"
    peft_adapters.convert(folder / "base", base, layout="release")
    shutil.copytree(folder / "ours", ours)
    matrices = {
        name.replace(f".{kind}.", "."): value
        for name, value in stored(ours).items()
        if ".lora_" in name
    }
    safetensors.numpy.save_file(matrices, ours / WEIGHTS)
    config(ours, base_model_name_or_path=str(base))
    assert Source.open(str(ours)).shapes() == Source.open(str(base)).shapes()


def test_its_base_supplies_config_and_vocabulary(made, tmp_path):
    shutil.copy(made / "vocab.txt", made / "base")
    folders = {"output_dir": str(tmp_path / "new"), "data_dir": str(tmp_path)}
    flags = run_classifier.Options(
        task_name="mrpc", do_predict=True, init_checkpoint=str(made / "ours"), **folders
    )
    flags = settle.TrainableModel(flags).flags
    assert flags.vocab_file == str(made / "base" / "vocab.txt")
    assert flags.bert_config_file == str(made / "ours" / CONFIG)
    assert read_config(flags.bert_config_file).hidden_size == 16


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        # In peft, "dense" would also mean the other layers that are called so.
        (["attention/output/dense"], ["attention.output.dense"]),
        (["output/dense"], ["attention.output.dense", "output.dense"]),
        (["key", "intermediate/dense"], ["attention.self.key", "intermediate.dense"]),
    ],
)
def test_peft_would_train_what_we_trained(tmp_path, targets, expected):
    peft_adapters.write_base(tmp_path, "bert")
    peft_adapters.make(tmp_path, "bert", targets=targets)
    peft_adapters.convert(tmp_path / "output", tmp_path / "ours")
    names = [f"bert.encoder.layer.{n}.{name}" for n in (0, 1) for name in expected]
    assert config(tmp_path / "ours")["target_modules"] == names
    written = {
        n.partition(".lora_")[0] for n in names_in(tmp_path / "ours") if "lora" in n
    }
    assert written == set(names)


HEADS_OF_BERT = [
    (tasks.Tagging(3), "TOKEN_CLS", "classifier", {"head": "tagging"}),
    (tasks.Choice(), None, "classifier", {}),
    # Peft's class for questions drops the token types.
    (tasks.Span(), None, "qa_outputs", {}),
]


@pytest.mark.parametrize(("task", "task_type", "module", "flags"), HEADS_OF_BERT)
def test_other_heads(tmp_path, task, task_type, module, flags):
    peft_adapters.write_base(tmp_path, "bert")
    peft_adapters.make(tmp_path, "bert", task)
    peft_adapters.convert(tmp_path / "output", tmp_path / "ours", **flags)
    said = config(tmp_path / "ours")
    assert (said["task_type"], said["modules_to_save"]) == (task_type, [module])
    others = {name for name in names_in(tmp_path / "ours") if "lora" not in name}
    assert others == {f"{module}.weight", f"{module}.bias"}
    network = task.network(read_config(str(tmp_path / "ours")))
    variables = {v.path: v for v in network.weights}
    Source.open(str(tmp_path / "ours")).load(variables, required="")
    whole = read(tmp_path / "output")
    for name, variable in variables.items():
        np.testing.assert_array_equal(variable, whole[name], err_msg=name)
    peft_adapters.convert(tmp_path / "ours", tmp_path / "again", **flags)
    jobs.check_same_bits(stored(tmp_path / "again"), stored(tmp_path / "ours"))


def test_a_base_on_the_hub_keeps_its_revision(bert):
    source = Source.open(str(bert))
    layout = adapter_of(read_config(str(bert)))
    for base, revision in (("hf://klue/bert@v1", "v1"), ("hf://klue/bert", None)):
        peft.write(
            str(bert / "new"),
            source.adapters.read_stored(),
            source.read(),
            layout,
            base=base,
            alpha=4.0,
            task={},
        )
        said = config(bert / "new")
        named = said["base_model_name_or_path"], said["revision"]
        assert named == ("klue/bert", revision)
        assert Source.open(str(bert / "new")).adapters.note.base == base


def test_adapters_of_a_bfloat16_model_are_read(bert, tmp_path):
    known = stored(bert)
    path = tmp_path / WEIGHTS
    shutil.copy(bert / CONFIG, tmp_path)
    # As torch saves them; from numpy, safetensors does not.
    parts, header, end = [], {}, 0
    for name, value in known.items():
        parts.append(value.astype(ml_dtypes.bfloat16).tobytes())
        place = [end, end := end + len(parts[-1])]
        header[name] = {"dtype": "BF16", "shape": value.shape, "data_offsets": place}
    said = json.dumps(header).encode()
    path.write_bytes(b"".join([len(said).to_bytes(8, "little"), said, *parts]))
    found = Source.open(str(path)).adapters.read_stored()
    for name, value in Source.open(str(bert)).adapters.read_stored().items():
        expected = value.astype(ml_dtypes.bfloat16).astype(np.float32)
        np.testing.assert_array_equal(found[name], expected)
    whole = {name: value.astype(np.int8) for name, value in known.items()}
    safetensors.numpy.save_file(whole, path)
    with pytest.raises(UserError, match="has type I8, but only F64, F32, F16, BF16"):
        Source.open(str(path)).adapters.read_stored()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_dora": True}, "use_dora is True, and only False is read; merge"),
        # These kernels are what their base has, less than what the adapter adds at first.
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', and only True"),
        ({"init_lora_weights": "olora"}, "init_lora_weights is 'olora', and only True"),
        (
            {"alora_invocation_tokens": [3]},
            r"alora_invocation_tokens is \[3\], and only",
        ),
        ({"target_parameters": ["x"]}, r"target_parameters is \['x'\], and only"),
        ({"peft_type": "IA3"}, "does not describe a LoRA adapter"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path is None"),
        ({"base_model_name_or_path": "/none"}, "/none: no such .* change base_model"),
        ({"lora_alpha": -1}, "lora_alpha is -1; it must be above 0"),
        (
            {"r": 3},
            r"lora_[AB].weight is of the shape .*, but r is 3 in adapter_con",
        ),
        (
            {"r": "x"},
            r"lora_[AB].weight is of the shape .*, but r is 'x' in adapter",
        ),
    ],
)
def test_what_peft_computes_otherwise_is_refused(bert, changes, message):
    config(bert, **changes)
    with pytest.raises(UserError, match=message) as refused:
        read(bert)
    assert "\n" not in str(refused.value)


def test_an_adapter_of_itself_is_refused(bert):
    config(bert, base_model_name_or_path=str(bert))
    for ask in (read, lambda folder: read_config(str(folder))):
        with pytest.raises(UserError, match="ours: is an adapter, too; merge it"):
            ask(bert)


def test_an_adapter_with_parts_of_it_missing_is_refused(bert):
    tensors = stored(bert)
    lost = next(name for name in tensors if "lora_A" in name)
    del tensors[lost]
    safetensors.numpy.save_file(tensors, bert / WEIGHTS)
    with pytest.raises(UserError, match="query has no lora_kernel_a, only the other"):
        read(bert)


def test_a_model_without_adapters_is_not_written_as_one(made, tmp_path):
    with pytest.raises(
        UserError, match="contains no adapters; --layout=peft is for a r"
    ):
        peft_adapters.convert(made / "base", tmp_path / "new")
