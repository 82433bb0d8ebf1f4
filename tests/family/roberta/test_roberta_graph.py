"""Its tokenizer in a SavedModel does the same as in Python."""

import tests
from tests.saved_tokenizers import check_server
from text.tokenizers.table import TokenizerOptions


def test_a_server_gives_the_same_ids(tmp_path):
    tokenizer = TokenizerOptions().load_tokenizer(str(tests.GOLDEN / "byte_bpe"))
    check_server(tokenizer, tmp_path)
