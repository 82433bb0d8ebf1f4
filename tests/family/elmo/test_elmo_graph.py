"""Its tokenizer in a SavedModel does the same as in Python."""

from family.elmo.tokenizer import SPECIAL
from tests.saved_tokenizers import check_server
from text.tokenizers.table import TokenizerOptions


def test_a_server_gives_the_same_ids(tmp_path):
    words = "".join(f"{word}\n" for word in [*SPECIAL, "é", "cats,", "a"])
    (tmp_path / "words.txt").write_text(words)
    tokenizer = TokenizerOptions().load_tokenizer(str(tmp_path))
    check_server(tokenizer, tmp_path)
