"""Folders of Korean models load as Hugging Face has them; here with random weights."""

import json

import numpy as np
import pytest

import build_vocab
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import read_config
from errors import UserError
from modeling.architectures.table import make_encoder
from modeling.objectives import masked_lm
from tests import tiers
from tests.classifier import run
from tests.conversion import convert
from tests.training.interchange.hugging_face import loaded
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.vocabulary import SPECIAL_TOKENS
from training.interchange import table

PIECES = ["한국", "##어", "모델", "##을", "Mo", "##del", "m", "##o", "."]
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
}
BERT = SMALL | {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "max_position_embeddings": 512,
}
CASED = {"do_lower_case": False, "model_max_length": 512}
ROBERTA_ORDER = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]  # 0 to 4
# Of config.json and tokenizer_config.json, written from memory of the published ones, with
# other sizes, and the order of the special tokens.
MODELS = {
    "KLUE-BERT": (BERT, CASED | {"tokenizer_class": "BertTokenizer"}, SPECIAL_TOKENS),
    "KcBERT": (
        BERT
        | {
            "max_position_embeddings": 300,
            "directionality": "bidi",
            "gradient_checkpointing": False,
            "pooler_fc_size": 768,
            "pooler_num_attention_heads": 12,
            "pooler_num_fc_layers": 3,
            "pooler_size_per_head": 128,
            "pooler_type": "first_token_transform",
        },
        {"do_lower_case": False, "max_len": 300},
        SPECIAL_TOKENS,
    ),
    "KoELECTRA": (
        BERT
        | {
            "architectures": ["ElectraForPreTraining"],
            "model_type": "electra",
            "embedding_size": 16,
            "summary_activation": "gelu",
            "summary_last_dropout": 0.1,
            "summary_type": "first",
            "summary_use_proj": True,
        },
        CASED | {"tokenizer_class": "ElectraTokenizer"},
        SPECIAL_TOKENS,
    ),
    "KLUE-RoBERTa": (
        BERT
        | {
            "architectures": ["RobertaForMaskedLM"],
            "model_type": "roberta",
            "layer_norm_eps": 1e-5,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 2,
            "type_vocab_size": 1,
            "max_position_embeddings": 514,
            "tokenizer_class": "BertTokenizer",
        },
        CASED | {"tokenizer_class": "BertTokenizer"},
        ROBERTA_ORDER,
    ),
}


def write(folder, values, tokenizer_config):
    """A folder with weights of transformers' names; returns the model they are of."""
    config = table.config_from_json(values)
    model = masked_lm.MaskedLM().network(config, seed=1)
    (folder / "release").mkdir()
    tensors = {v.path: v.numpy() for v in model.weights}
    checkpoint.save(Folder.open(str(folder / "release")), 1, tensors, keep=1)
    ours = config.to_json_string()
    (folder / "release" / "bert_config.json").write_text(ours)
    convert(folder / "release", folder / "theirs", layout="hugging_face")
    (folder / "theirs" / "config.json").write_text(json.dumps(values))
    path = folder / "theirs" / "tokenizer_config.json"
    path.write_text(json.dumps(tokenizer_config))
    return model


def answers_pairs(tmp_path, folder):
    """Fine-tunes on pairs of texts, with nothing but the folder."""
    row = {"premise": "한국어 모델을", "hypothesis": "모델.", "guid": "a"}
    rows = [row | {"gold_label": label} for label in ("neutral", "entailment") * 2]
    for split in "train", "dev":
        path = tmp_path / f"klue-nli-v1.1_{split}.json"
        path.write_text(json.dumps(rows, ensure_ascii=False))
    own = {"vocab_file": None, "bert_config_file": None, "max_seq_length": 16}
    own |= {"init_checkpoint": str(folder), "train_batch_size": [2]}
    run(tmp_path, "klue_nli", do_train=True, do_eval=True, **own)


@pytest.mark.parametrize(
    "name",
    [
        "KLUE-BERT",
        "KcBERT",
        pytest.param("KoELECTRA", marks=tiers.of_family("electra")),
        pytest.param("KLUE-RoBERTa", marks=tiers.of_family("roberta")),
    ],
)
def test_a_published_folder_is_all_that_is_needed(tmp_path, untraced, name):
    values, tokenizer_config, special = MODELS[name]
    tokens = [*special, *PIECES]
    model = write(tmp_path, values | {"vocab_size": len(tokens)}, tokenizer_config)
    theirs = tmp_path / "theirs"
    (theirs / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    tokenizer = TokenizerOptions().load_tokenizer(str(theirs))
    assert tokenizer.tokenize("한국어 모델을 Model.") == [*PIECES[:6], "."]
    config = read_config(str(theirs))
    ids = np.array([tokenizer.encode("한국어 모델을")])
    encoder = make_encoder(config)
    inputs = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    encoder(inputs)
    loaded(encoder, theirs, required=config.architecture)
    found, expected = (e(inputs)["sequence_output"] for e in (encoder, model.encoder))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    answers_pairs(tmp_path, theirs)


# --- KoBERT ---------------------------------------------------------------------------


@pytest.fixture
def kobert(tmp_path):
    """A folder like KoBERT's, with a SentencePiece model of the same special pieces."""
    (tmp_path / "text.txt").write_text(
        "한국어 모델을 공유합니다. 모델은 한국어다.\n" * 30
    )
    model = tmp_path / "learned.model"
    build_vocab.main(
        build_vocab.Options(
            input_file=[str(tmp_path / "text.txt")],
            output_file=str(model),
            special_tokens="kobert",
            vocab_size=40,
        )
    )
    tokens = TokenizerOptions().load_tokenizer(str(model)).vocabulary.tokens
    values = BERT | {"vocab_size": len(tokens), "pad_token_id": 1}
    write(tmp_path, values, CASED | {"tokenizer_class": "XLNetTokenizer"})
    (tmp_path / "theirs" / "spiece.model").write_bytes(model.read_bytes())
    return tmp_path


@tiers.of_family("xlnet")  # whose name for tokenizers KoBERT's folder has
def test_kobert_reads_its_sentencepiece_model(kobert, untraced):
    tokenizer = TokenizerOptions().load_tokenizer(str(kobert / "theirs"))
    vocabulary = tokenizer.vocabulary
    assert vocabulary.tokens[:5] == ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    assert (vocabulary.pad_id, vocabulary.head, vocabulary.end_id) == (1, (2,), 3)
    assert "".join(tokenizer.tokenize("한국어 모델을")) == "▁한국어▁모델을"
    answers_pairs(kobert, kobert / "theirs")


def test_a_list_of_pieces_is_not_read_as_wordpiece(tmp_path):
    path = tmp_path / "vocab.txt"  # as in monologg/kobert
    path.write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\n▁한국\n어\n▁모델\n")
    with pytest.raises(
        UserError, match="pieces of a SentencePiece.*pass the .model file"
    ):
        TokenizerOptions().load_tokenizer(str(path))
