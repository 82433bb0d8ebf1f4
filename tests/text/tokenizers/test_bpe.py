"""The engine of byte-level BPE serves a vocabulary whose rules no code knows."""

import json

import pytest
import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from errors import UserError
from text.tokenizers import tokenizer_json
from text.tokenizers.bpe import ByteBpe, ByteBpeKind
from text.tokenizers.kind import hugging_face_classes
from text.tokenizers.table import TOKENIZERS, OpenVocabulary, TokenizerOptions
from text.tokenizers.tokenizer import HuggingFaceFiles
from text.tokenizers.vocabulary import SPECIAL_TOKENS, SpecialTokens

TEXT = (
    "Caf\u00e9 cafe\u0301 def f(x):\n        return x  # \ud55c\uad6d\uc5b4 \U0001f642"
)
RUNS = (" " * 2, " " * 4, " " * 8)


class Runs(ByteBpe):
    """Like ModernBERT: composes text, has tokens for runs of spaces, and BERT's rows."""

    def __init__(self, vocabulary, merges):
        cut_out = [AddedToken(run, normalized=True, special=False) for run in RUNS]
        super().__init__(
            vocabulary, merges, normalizer=normalizers.NFC(), cut_out=cut_out
        )

    def hugging_face(self):
        return HuggingFaceFiles({}, self.json(tokenizer_json.rows(self.vocabulary)))


class RunsKind(ByteBpeKind):
    tokenizer, normalizer, cut_out = Runs, normalizers.NFC(), RUNS
    special = SpecialTokens(second_segment=0, continuation="")
    hugging_face_classes = hugging_face_classes()

    def reads(self, file):
        return False  # only tokenizer.json is of this kind

    def reads_json(self, content):
        types = [s["type"] for s in tokenizer_json.steps(content["normalizer"])]
        return super().reads_json(content) and types == ["NFC"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With a tokenizer.json that the package tokenizers has learned."""
    monkeypatch.setitem(TOKENIZERS, "runs", RunsKind())
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TEXT] * 9, trainer)
    made.add_tokens([AddedToken(run, normalized=True, special=False) for run in RUNS])
    cls, sep = made.token_to_id("[CLS]"), made.token_to_id("[SEP]")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)],
    )
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_its_ids_and_offsets_are_those_of_the_package(folder):
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = TokenizerOptions().load_tokenizer(str(folder))
    expected = theirs.encode(TEXT, add_special_tokens=False)
    assert type(ours) is Runs and ours.encode(TEXT) == expected.ids
    assert RUNS[2] in ours.tokenize(TEXT)
    ids, starts, ends = ours.encode_with_offsets(TEXT)
    assert ids == expected.ids
    # Ours leave out the space before a word.
    spans = zip(expected.offsets, zip(starts, ends, strict=True), strict=True)
    assert all(TEXT[slice(*a)].strip() == TEXT[slice(*b)].strip() for a, b in spans)
    assert ours.vocabulary.text_of(ours.encode("a b")) == "a b"


def test_what_is_written_is_read_back(folder):
    ours = TokenizerOptions().load_tokenizer(str(folder))
    described = ours.hugging_face().json
    (folder / "tokenizer.json").write_text(described)
    again = TokenizerOptions().load_tokenizer(str(folder))
    assert again.encode(TEXT) == ours.encode(TEXT)
    assert again.settings == ours.settings
    theirs = tokenizers.Tokenizer.from_str(described)
    row = [*ours.vocabulary.head, *ours.encode(TEXT), *ours.vocabulary.tail]
    assert theirs.encode(TEXT).ids == row


def test_other_steps_are_refused(folder):
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"][-1]["content"] = "   "
    path.write_text(json.dumps(content))
    assert isinstance(OpenVocabulary.open(str(folder)).kind, RunsKind)
    with pytest.raises(UserError, match="added_tokens has '   '"):
        TokenizerOptions().load_tokenizer(str(folder))
