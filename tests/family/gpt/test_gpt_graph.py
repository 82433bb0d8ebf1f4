"""Its tokenizer in a SavedModel does the same as in Python."""

import tests
from tests.saved_tokenizers import check_server
from text.tokenizers.table import TokenizerOptions


def test_a_server_gives_the_same_ids(tmp_path):
    path = tests.GOLDEN / "gpt_bpe" / "encoder_bpe_40000.json"
    tokenizer = TokenizerOptions().load_tokenizer(str(path))
    check_server(tokenizer, tmp_path)
