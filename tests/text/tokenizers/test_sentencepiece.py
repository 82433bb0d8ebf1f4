"""SentencePiece by a row: other special tokens, learned, recognized, and in a graph."""

import pytest

from tests.pieces import check_graph, in_graph
from text.tokenizers import sentencepiece
from text.tokenizers.learning import sentencepiece_learning
from text.tokenizers.sentencepiece_family import KOBERT, Family, Symbols
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.vocabulary import SpecialTokens

LINES = ["Low lower lowest (new) newer - newest! In 2019, 1,000 words."] * 20
# It has the special tokens of T5, too, which are fewer.
OWN = Family(
    SpecialTokens(("<pad>", "<unk>", "<s>", "</s>", "<hidden>"), continuation=""),
    Symbols(
        {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}, ("<hidden>",), ("(",), 70
    ),
    do_lower_case=False,
)


@pytest.mark.parametrize("family", [KOBERT, OWN], ids=["kobert", "own"])
def test_a_row_is_all_that_a_model_needs(family, tmp_path, monkeypatch):
    rows = sentencepiece.in_order(sentencepiece.FAMILIES | {"own": OWN})
    monkeypatch.setattr(sentencepiece, "FAMILIES", rows)
    content = sentencepiece_learning.learn(
        iter(LINES),
        family.symbols,
        vocab_size=70,
        character_coverage=1.0,
        input_sentence_size=1000,
    )
    (tmp_path / "spiece.model").write_bytes(content)
    tokenizer = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert tokenizer.family is family and not tokenizer.settings["do_lower_case"]
    vocabulary = tokenizer.vocabulary
    spelled = [vocabulary.tokens[id] for id in vocabulary.special_ids.values()]
    assert spelled == list(family.special.names)
    texts = [*LINES, "", " ", "1,000, a\u0301 Low"]
    assert vocabulary.unk_id not in tokenizer.encode(LINES[0])
    check_graph(tokenizer, in_graph(tokenizer, tmp_path), texts)
