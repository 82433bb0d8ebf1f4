"""A tokenizer.json of a T5 is a SentencePiece model with sentinels, and back."""

import pytest
import tokenizers

from errors import UserError
from tests.tokenizer_json import PIECES, SPACE, WORDS, rows, write
from text.tokenizers import sentencepiece_files
from text.tokenizers.sentencepiece_files import Piece
from text.tokenizers.table import TokenizerOptions


def test_t5_keeps_its_sentinels(tmp_path):
    pieces = ["<pad>", "</s>", "<unk>", SPACE, "a", "b", f"{SPACE}a"]
    vocabulary = [[piece, -float(number)] for number, piece in enumerate(pieces)]
    vocabulary += [[f"<extra_id_{n}>", 0.0] for n in reversed(range(100))]
    parts = {
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocabulary},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": WORDS},
        "post_processor": rows("A </s>", "A </s> B </s>"),
    }
    ours = TokenizerOptions().load_tokenizer(str(write(tmp_path, **parts)))
    assert ours.vocabulary.sentinels == list(range(106, 6, -1))
    assert ours.encode("ab  a ") == [6, 5, 6]
    del parts["model"]["vocab"][-1]
    with pytest.raises(UserError, match="does not end with <extra_id_99>"):
        TokenizerOptions().load_tokenizer(str(write(tmp_path, **parts)))


def test_t5_is_written_with_its_sentinels(tmp_path):
    pieces = ["<pad>", "</s>", "<unk>", SPACE, "a", "b", f"{SPACE}a"]
    kinds_of = {"<unk>": Piece.UNKNOWN, "<pad>": Piece.CONTROL, "</s>": Piece.CONTROL}
    listed = [
        (p, -1.0 - i, kinds_of.get(p, Piece.NORMAL)) for i, p in enumerate(pieces)
    ]
    model = sentencepiece_files.model(listed, sentencepiece_files.Specification())
    (tmp_path / "t5.model").write_bytes(model)
    ours = TokenizerOptions().load_tokenizer(str(tmp_path / "t5.model"))
    theirs = tokenizers.Tokenizer.from_str(ours.hugging_face().json)
    assert theirs.encode("a <extra_id_0>  b a").ids == [6, 106, 3, 5, 6, 1]
    assert theirs.encode("a b", add_special_tokens=False).ids == ours.encode("a b")
    (tmp_path / "tokenizer.json").write_text(ours.hugging_face().json)
    (tmp_path / "t5.model").unlink()
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert again.vocabulary.tokens == ours.vocabulary.tokens


@pytest.mark.parametrize(
    "text",
    [
        *(
            "\u00bd\u200d",
            "2\u20e3 \u00b2\u20e3",
            "x\u00a0\u0310",
            "\u0301\u00bd\u3000",
        ),
        *("a\u0301", "a\u0301\u0328", "a\u0328\u0301", "a\u0330\u0301", "a\u0344"),
        *(
            "\uff41\u0301",
            "u\u0308\u0301",
            "\uff76\uff9e",
            "\u3131\u314f",
            "\ufb01\u200d1",
        ),
    ],
)
def test_marks_of_a_character_are_kept_as_the_map_keeps_them(tmp_path, text):
    """Theirs replaces a character and its marks by what replaces the character."""
    known = [*"12\u2044ax\u00e1\u01d8\u0105u\u30ac\uac00", "\u200d", "\u20e3"]
    known += ["\u0301", "\u0328", "\u0330", "fi"]
    special = {"<pad>": Piece.CONTROL, "</s>": Piece.CONTROL, "<unk>": Piece.UNKNOWN}
    pieces = [(token, 0.0, kind) for token, kind in special.items()]
    pieces += [(token, -1.0, Piece.NORMAL) for token in (SPACE, *known)]
    xlnet = sentencepiece_files.specification((PIECES / "xlnet.model").read_bytes())
    path = tmp_path / "t5.model"
    path.write_bytes(sentencepiece_files.model(pieces, xlnet))
    ours = TokenizerOptions().load_tokenizer(str(path))
    theirs = tokenizers.Tokenizer.from_str(ours.hugging_face().json)
    assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text)
