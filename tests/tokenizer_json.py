"""Files tokenizer.json as transformers 5 writes them, and what holds of those we write."""

import json
import pathlib
import unicodedata

import pytest
import tokenizers

import tests
from errors import UserError
from text.tokenizers import sentencepiece_files
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import SPECIAL_TOKENS

WORDPIECE = tests.GOLDEN / "tokenization"
PIECES = tests.GOLDEN / "sentencepiece"
TEXT = "Ὦ Élan 3.5 漢字 1,000 (x) don't"
TEXTS = (
    TEXT,
    "3.5 U.S. co-op (x) \"q\" ``quoted'' 1,000,000 $5",
    "굿 한국어 \u1112\u1161\u11ab \u1100\u116e\u11bafx",
    "ΟΔΟΣ ΣΊΣΥΦΟΣ. İstanbul Straße e\u0301 q\u0323 ½ ﬁ ™ Ⅷ x²",
    " two  spaces\tand\nlines\u3000here\x85\u2028\u200b ",
    "हिन्दी ภาษาไทย 👩\u200d👩\u200d👧 👍🏽 ﷺ \u2581a ガ カ\u3099",
    "",
)


def rows(single: str, pair: str) -> dict:
    """A post-processor."""

    def parts(row):
        return [
            {"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": 0}}
            for name in row.split()
        ]

    names = {name for name in pair.split() if name not in "AB"}
    known = {name: {"id": name, "ids": [0], "tokens": [name]} for name in names}
    return {
        "type": "TemplateProcessing",
        "single": parts(single),
        "pair": parts(pair),
        "special_tokens": known,
    }


def added(ids: dict[str, int], special: bool = True) -> list[dict]:
    kept = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": id, "content": token, "special": special} | kept
        for token, id in ids.items()
    ]


def write(folder: pathlib.Path, **content) -> pathlib.Path:
    """A tokenizer.json of these parts in a folder."""
    parts = dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor", "decoder"))
    content = {"version": "1.0", "added_tokens": []} | parts | content
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


SPACE = "\u2581"
WORDS = [{"type": "WhitespaceSplit"}] + [
    {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always"}
]


def unigram(name: str, row: tuple[str, str], steps: list[dict]) -> dict:
    content = (PIECES / f"{name}.model").read_bytes()
    model = sentencepiece_files.processor(content)
    pieces = [[model.id_to_piece(i), model.get_score(i)] for i in range(len(model))]
    return {
        "model": {"type": "Unigram", "unk_id": model.unk_id(), "vocab": pieces},
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": WORDS},
        "post_processor": rows(*row),
    }


def replace(old: str, new: str) -> dict:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


QUOTES = [replace("``", '"'), replace("''", '"')]
ACCENTS = [{"type": "NFKD"}, {"type": "StripAccents"}]
LOWER = [{"type": "Lowercase"}]


def bert(**flags) -> dict:
    """The parts of BERT's; flags of its normalizer."""
    tokens = (WORDPIECE / "uncased_vocab.txt").read_text(encoding="utf-8").split("\n")
    ids = {token: id for id, token in enumerate(tokens[:-1])}
    chosen = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    return {
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
        "normalizer": {"type": "BertNormalizer", "lowercase": True} | chosen | flags,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": rows("[CLS] A [SEP]", "[CLS] A [SEP] B [SEP]"),
        "added_tokens": added({token: ids[token] for token in SPECIAL_TOKENS}),
    }


def bpe(folder: pathlib.Path, vocabulary: str, merges: str, **parts) -> dict:
    lines = (folder / merges).read_text(encoding="utf-8").split("\n")
    model = {
        "type": "BPE",
        "vocab": json.loads((folder / vocabulary).read_text(encoding="utf-8")),
        "merges": [line for line in lines if line and not line.startswith("#version")],
    }
    return {"model": model | parts}


def changed(parts: dict, name: str, **values) -> dict:
    return parts | {name: parts[name] | values}


def with_tokens(parts: dict, special: bool, **ids) -> dict:
    return parts | {"added_tokens": parts["added_tokens"] + added(ids, special)}


def check_same_files(parts: dict, own: pathlib.Path, folder: pathlib.Path) -> None:
    """A tokenizer.json of these parts is the vocabulary of other files."""
    write(folder, **parts)
    flags = TokenizerOptions()
    ours, same = (flags.load_tokenizer(str(path)) for path in (folder, own))
    assert type(ours) is type(same)
    assert ours.encode(TEXT) == same.encode(TEXT)
    assert ours.vocabulary.tokens == same.vocabulary.tokens
    for name, content in ours.files.items():
        (folder / name).write_bytes(content)
    assert flags.load_tokenizer(str(folder)).settings == ours.settings


def check_unigram(folder: pathlib.Path, parts: dict, name: str, flags: dict) -> None:
    """A tokenizer.json of these parts is a SentencePiece model with these flags."""
    folder = write(folder, **parts)
    ours = TokenizerOptions().load_tokenizer(str(folder))
    path = str(PIECES / f"{name}.model")
    same = TokenizerOptions(**flags).load_tokenizer(path)
    assert ours.vocabulary.tokens == same.vocabulary.tokens
    assert ours.splits == same.splits
    text = (
        "Élan ÉLAN  ``x'' U.S. co-op 3.5 1,000 (x) don't"  # needs no map of characters
    )
    assert ours.encode(text) == same.encode(text)
    noted = {k: v for k, v in ours.settings.items() if k != "vocab_sha256"}
    assert noted.items() <= same.settings.items()


def check_refused(folder: pathlib.Path, parts: dict, said: str) -> None:
    with pytest.raises(UserError, match=f"tokenizer.json: .*({said})"):
        TokenizerOptions().load_tokenizer(str(write(folder, **parts)))


def check_written(
    ours: Tokenizer,
    folder: pathlib.Path,
    *,
    keeps_sigma: bool = False,
    has_rows: bool = True,
) -> None:
    """What a tokenizer is written as gives its ids, and is read back.

    Args:
        keeps_sigma: else it has BERT's final sigma, which is not expressed.
        has_rows: whether transformers has its rows.
    """
    content = ours.hugging_face().json
    theirs = tokenizers.Tokenizer.from_str(content)
    for text in TEXTS:
        if "Σ" in text and not keeps_sigma:
            text = text.replace("Σ", "S")
        if "\u1161" in text and ours.settings.get("strip_accents") is False:
            text = unicodedata.normalize("NFC", text)  # nor is composed Hangul
        encoded = theirs.encode(text, add_special_tokens=False)
        assert encoded.ids == ours.encode(text), text
    if has_rows:
        vocabulary = ours.vocabulary
        first, second = ours.encode("a b"), ours.encode("c")
        row = [*vocabulary.head, *first, *vocabulary.between, *second, *vocabulary.tail]
        assert theirs.encode("a b", "c").ids == row
    mask = ours.vocabulary.special_ids.get("[MASK]")
    if mask is not None:
        assert mask in theirs.encode(f"the {ours.vocabulary.mask}.").ids
    (folder / "tokenizer.json").write_text(content)
    again = TokenizerOptions().load_tokenizer(str(folder))
    assert again.vocabulary.tokens == ours.vocabulary.tokens
    assert again.settings.keys() == ours.settings.keys()
    for key, value in again.settings.items():
        assert key == "vocab_sha256" or value == ours.settings[key]
    for text in TEXTS:
        assert again.encode(text) == ours.encode(text)
