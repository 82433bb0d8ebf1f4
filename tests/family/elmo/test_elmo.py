"""An ELMo in the scripts: pre-trained, frozen below other heads; the released files."""

import json
import shutil

import h5py
import numpy as np
import pytest

import convert_checkpoint
import extract_features
import run_classifier
import tests
from training.storage.source import Source, read_config
from errors import UserError
from family.elmo.encoder import ElmoConfig
from family.elmo.tokenizer import SPECIAL, WholeWords
from files.folder_files import FolderFiles
from tests import jobs, ner
from tests.pretraining import metrics, results, run
from tests.records import VOCAB_FILE, make_records
from tests.relatives import classifier_files, classifier_flags, write_start
from text.graphs.lookup import graph_of
from text.tokenizers.table import (
    OpenVocabulary,
    TokenizerOptions,
    find_vocabulary,
    load_vocabulary,
)
from text.tokenizers.wordpiece import WordPiece

GOLDEN = tests.GOLDEN / "elmo"
MODELS = ("skip_clip3", "noskip_clip0.1")
SENTENCES = json.loads((GOLDEN / "sentences.json").read_text())
CONFIG = ElmoConfig(3000, hidden_size=16, lstm_size=12)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts"
    path.write_text("".join(" ".join(words) + "\n" for words in SENTENCES))
    return path


def weights_of(name):
    return str(GOLDEN / f"{name}_weights.hdf5")


def extract(texts, folder, source, **changes):
    """-> by layer, the vectors of each text without those of its ends."""
    given = {
        "input_file": str(texts),
        "output_file": str(folder / "features"),
        "output_format": "hdf5",
        "init_checkpoint": str(source),
        "layers": ["embeddings", "0", "1", "mix"],
    }
    jobs.run(extract_features, given | changes)
    with h5py.File(folder / "features") as file:
        offsets = file["offsets"][:]
        return {
            name: [
                file[name][start + 1 : end - 1]
                for start, end in zip(offsets, offsets[1:], strict=False)
            ]
            for name in file
            if name.startswith("layer_")
        }


# --- The released files --------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_vectors_of_words_of_any_script_equal_bilms(texts, tmp_path, untraced, name):
    golden = np.load(GOLDEN / "elmo_outputs.npz")
    assert any(not word.isascii() for words in SENTENCES for word in words)
    mix = {
        "mix_weights": golden["mix_W"].tolist(),
        "mix_scale": float(golden["mix_gamma"][0]),
    }
    found = extract(texts, tmp_path, weights_of(name), **mix)
    for row, words in enumerate(SENTENCES):
        for layer, key in enumerate(("embeddings", "0", "1")):
            expected = golden[f"{name}_first_call"][row, layer, : len(words)]
            vectors = found[f"layer_{key}"][row]
            np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
        expected = golden[f"{name}_mix"][row, : len(words)]
        np.testing.assert_allclose(found["layer_mix"][row], expected, atol=1e-5)


@pytest.fixture(scope="module")
def known(texts, tmp_path_factory):
    """An ELMo of ours for the words of the texts."""
    folder = tmp_path_factory.mktemp("known") / "elmo"
    given = {"input": [weights_of(MODELS[0])], "words_file": [str(texts)]}
    jobs.run(convert_checkpoint, given | {"output_dir": str(folder)})
    return folder


def test_a_model_for_the_words_of_a_text_gives_their_vectors(
    texts, known, tmp_path, untraced
):
    config = read_config(str(known))
    assert (config.architecture, config.hidden_size, config.cell_clip) == (
        "elmo",
        24,
        3,
    )
    one = extract(texts, tmp_path, weights_of(MODELS[0]))
    other = extract(texts, tmp_path, known)
    for layer, rows in one.items():
        for expected, row in zip(rows, other[layer], strict=True):
            np.testing.assert_array_equal(row, expected)
    given = {"input": [str(known)], "output_dir": str(tmp_path / "theirs")}
    with pytest.raises(UserError, match="no tokenizer for a vocabulary of whole words"):
        jobs.run(convert_checkpoint, given | {"layout": "hugging_face"})


def test_the_tokenizer_of_words_keeps_them_whole_in_python_and_graph(tmp_path):
    words = ["n't", "Naïve", "한국어", "É", "e\u0301", "x" * 300]
    text = [" ".join(words), "\u3000É n't \x85"]
    tokenizer = WholeWords.of(word for line in text for word in line.split())
    assert tokenizer.vocabulary.tokens == [*SPECIAL, *words]
    text = "n't\u00a0 Naïve\tunseen <S> 한국어\x1ce\u0301 É! É"
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text) == [4, 5, 1, 1, 6, 8, 1, 7]
    cut = [text[a:b] for a, b in zip(starts, ends, strict=True)]
    assert cut == text.split()
    graph = graph_of(tokenizer, str(tmp_path))
    columns = graph.encode_with_offsets([text, "", "한국어"])
    assert [c.to_list()[0] for c in columns] == [ids, starts, ends]
    assert columns[0].to_list()[1:] == [[], [6]]
    (tmp_path / "words.txt").write_bytes(tokenizer.files["words.txt"])
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert again.settings == tokenizer.settings and again.encode(text) == ids
    (tmp_path / "words.txt").write_text("<PAD>\ntwo words\n")
    with pytest.raises(UserError, match=r"words.txt:2: 'two words' is not one word"):
        load_vocabulary(str(tmp_path / "words.txt"))


def test_another_vocabulary_may_be_called_words_txt(tmp_path):
    path = tmp_path / "words.txt"
    assert OpenVocabulary.open(str(path)).kind.tokenizer is WordPiece
    shutil.copy(VOCAB_FILE, path)
    assert "[PAD]" in load_vocabulary(str(path)).ids
    path.write_text("some\nwords\n")
    assert find_vocabulary(FolderFiles(str(tmp_path))) is None


@pytest.fixture
def refused(texts, tmp_path, untraced):
    """The released files are in `tmp_path`; checks that vectors are refused."""
    for kind in ("options.json", "weights.hdf5"):
        shutil.copy(GOLDEN / f"skip_clip3_{kind}", tmp_path / kind)

    def check(message, source=tmp_path, **changes):
        with pytest.raises(UserError, match=message):
            extract(texts, tmp_path, source, **changes)

    return check


def test_flags_that_do_not_fit_released_files_are_refused(texts, tmp_path, refused):
    with pytest.raises(UserError, match="contains noskip_.*, skip_.*; pass the path"):
        Source.open(str(GOLDEN))
    assert Source.open(str(tmp_path)).prefix == str(tmp_path / "weights.hdf5")
    refused("leave this flag out", vocab_file="words.txt")
    refused("write them to a file", input_file="-")
    refused("no layer 2; the model has 2", layers=["2"])
    refused("'first' is not a number, embeddings or mix", layers=["first"])
    refused(
        "--mix_weights: 2 numbers; the embeddings .* need 3", mix_weights=[1.0, 2.0]
    )
    refused("are for --layers=mix", layers=["0"], mix_scale=2.0)
    for mix in ({"mix_weights": [0.0, 1.0, float("nan")]}, {"mix_scale": float("inf")}):
        refused("must be a finite number", **mix)
    refused("half of the vector of .CLS. has seen no other token", pooling="cls")
    with pytest.raises(UserError, match="convert_checkpoint.py --words_file"):
        read_config(str(tmp_path))
    with pytest.raises(UserError, match="convert_checkpoint.py --words_file"):
        Source.open(str(tmp_path)).load({})
    with pytest.raises(UserError, match="convert_checkpoint.py --words_file"):
        given = {"input": [str(tmp_path)], "output_dir": str(tmp_path / "new")}
        jobs.run(convert_checkpoint, given)
    with pytest.raises(UserError, match="--words_file is for one --input"):
        given |= {"words_file": [str(texts)], "input": [str(tmp_path)] * 2}
        jobs.run(convert_checkpoint, given)
    for name in ("vocab_file", "bert_config_file", "network"):
        with pytest.raises(UserError, match=f"--{name} has no effect with"):
            jobs.run(convert_checkpoint, given | {name: "x"})


def test_released_files_that_do_not_fit_each_other_are_refused(tmp_path, refused):
    options = json.loads((tmp_path / "options.json").read_text())
    for change, message in (
        ({"lstm": options["lstm"] | {"dim": 21}}, r"W_0 is \[24, 80\], but .*\[24,"),
        ({"lstm": options["lstm"] | {"n_layers": 3}}, "Cell2/LSTMCell/W_0 is missing"),
        ({"lstm": options["lstm"] | {"n_layers": 1}}, "Cell1/LSTMCell/B is in no"),
        ({"char_cnn": None}, "not the options of a released ELMo with characters"),
        (
            {"lstm": options["lstm"] | {"use_skip_connections": "false"}},
            "use_skip_connections is 'false'; it must be of type bool",
        ),
        ({"char_cnn": {}}, r"\(it has no 'embedding'\)"),
    ):
        (tmp_path / "options.json").write_text(json.dumps(options | change))
        refused(message)
    (tmp_path / "options.json").write_text("{")
    refused(r"options.json:1: not JSON")
    (tmp_path / "options.json").write_text(json.dumps(options))
    with h5py.File(tmp_path / "weights.hdf5", "r+") as file:
        del file["CNN_proj/b_proj"]
        file["CNN_proj/b_proj"] = np.array([b"x"] * 12)
    refused(r"CNN_proj/b_proj is \[12\] of \|S1")
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        place = [(tmp_path / "options.json", 0, 40)]
        file.create_dataset("CNN/W_cnn_0", (10,), "f4", external=place)
    refused("CNN/W_cnn_0 has 40 bytes that are not in the file")
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        file.create_dataset("CNN/W_cnn_0", (10**12,), "f4", chunks=(1000,))
    refused("CNN/W_cnn_0 has 4,000,000,000,000 bytes that are not in the file")
    (tmp_path / "weights.hdf5").write_bytes(b"no HDF5")
    refused("is damaged or not HDF5")
    (tmp_path / "options.json").unlink()
    refused(r"needs the file \*options.json", tmp_path / "weights.hdf5")


# --- Our own -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return make_records(tmp_path_factory.mktemp("records"), masking="dynamic")


@pytest.fixture(scope="module")
def given(records):
    return {
        "config": CONFIG,
        "objective": "bidirectional_lm",
        "input_file": [records],
        "optimizer": "adagrad",
        "learning_rate": 0.2,
        "num_train_steps": 12,
        "save_checkpoints_steps": 8,
        "do_eval": True,
    }


@pytest.fixture
def whole(given, tmp_path):
    """A folder after a run."""
    (tmp_path / "whole").mkdir()
    run(tmp_path / "whole", **given)
    return tmp_path / "whole"


@pytest.mark.exhaustive
def test_a_pre_training_learns_and_a_tagger_its_mix(whole, given, tmp_path):
    found = {k: float(v) for k, v in results(whole).items()}
    ways = found["forward_loss"], found["backward_loss"]
    assert found["loss"] == pytest.approx(sum(ways) / 2, rel=1e-5)
    names = ("perplexity", "forward_perplexity", "backward_perplexity")
    logs = np.log([found[name] for name in names])
    np.testing.assert_allclose(logs, [found["loss"], *ways], rtol=1e-4)
    assert found["loss"] < 7.99  # ln 3000 is 8.006
    assert metrics(whole)[-1]["learning_rate"] == pytest.approx(0.2)
    expected = jobs.weights(whole)
    assert "elmo/table/adagrad" in expected
    with pytest.raises(UserError, match="--objective=bidirectional_lm has no export"):
        run(whole, **given | {"do_export": True, "vocab_file": VOCAB_FILE})
    with pytest.raises(UserError, match="no names for the architecture 'elmo'"):
        theirs = {"layout": "hugging_face", "output_dir": str(tmp_path / "theirs")}
        source = str(whole / "output")
        jobs.run(convert_checkpoint, {"input": [source]} | theirs)
    tagger = {
        "vocab_file": VOCAB_FILE,
        "bert_config_file": str(whole / "config.json"),
        "init_checkpoint": source,
        "features": "mix",
        "lstm_size": 6,
        "do_lower_case": True,
        "num_train_epochs": [0.5],
        "do_train": True,
    }
    with jobs.untraced():
        ner.run(ner.write_files(tmp_path), **tagger)
    learned = jobs.weights(tmp_path)
    assert np.all(learned["layer_weights"]) and learned["gamma"] != 1.0
    for name in learned.keys() & expected.keys() - {"global_step"}:
        if name.startswith("elmo/"):
            np.testing.assert_array_equal(learned[name], expected[name])


@pytest.mark.exhaustive
def test_all_of_it_is_fine_tuned_without_features(tmp_path, untraced):
    classifier_files(tmp_path)
    start, before = write_start(tmp_path, CONFIG)
    given = classifier_flags(tmp_path, **start, do_train=True, do_export=True)
    jobs.run(run_classifier, given)
    learned = jobs.weights(tmp_path)
    assert "gamma" not in learned
    assert any(np.any(value != learned[name]) for name, value in before.items())


def test_features_of_every_task_need_weights_and_take_no_pooling(tmp_path):
    flags = classifier_flags(tmp_path, do_train=True, features="mix")
    for changes, message in (
        ({}, "a frozen encoder needs --init_checkpoint"),
        ({"init_checkpoint": "x", "pooling": "mean"}, "no effect with --features"),
        (
            {"init_checkpoint": "x", "lm_loss_weight": 0.5},
            "--lm_loss_weight has no effect with --features",
        ),
    ):
        with pytest.raises(UserError, match=message):
            run_classifier.Options(**flags | changes)
