"""Reads and writes the tokenizer.json of BERT's WordPiece."""

from collections.abc import Mapping

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from errors import UserError
from files import inputs
from files.folder_files import FolderFiles
from text.tokenizers import tokenizer_json
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary


def is_wordpiece(content: Mapping) -> bool:
    """Whether what `tokenizer_json.find` returns is a WordPiece."""
    return content["model"]["type"] == "WordPiece"


def vocab_txt(path: str, content: Mapping) -> bytes:
    """The vocab.txt that a tokenizer.json stands for."""
    special = SpecialTokens()
    tokenizer_json.check_bert_words(path, content)
    tokenizer_json.check_model(path, content, "unk_token", special.names[1])
    tokenizer_json.check_model(
        path, content, "continuing_subword_prefix", special.continuation
    )
    # 100 in nearly all files, 200 in the release; see docs/vocabularies.md.
    tokenizer_json.check_model(path, content, "max_input_chars_per_word", 100, 200)
    tokens = tokenizer_json.tokens_of(path, content, special.tokens)
    tokenizer_json.check_layout(path, content, special)
    written = "".join(f"{token}\n" for token in tokens).encode()
    for id, (token, line) in enumerate(
        zip(tokens, inputs.lines(path, block=written), strict=False)
    ):
        if token != line.strip():
            raise UserError(
                f"{path}: token {id} of model.vocab is {token!r}, which one line of a "
                "vocab.txt cannot hold; use a model without such a token"
            )
    return written


def check_same_tokens(vocabulary: Vocabulary, folder: FolderFiles) -> None:
    """Refuses a vocab.txt that the tokenizer.json in its folder contradicts.

    Added tokens, which a vocab.txt need not list, may follow.
    """
    content, path = tokenizer_json.find(folder), folder.file(tokenizer_json.NAME)
    if content is None:
        return
    if not is_wordpiece(content):
        raise UserError(
            f"{path}: model.type is {content['model']['type']}, but {vocabulary.path} next "
            "to it is for WordPiece; move away the one that does not belong to the model"
        )
    tokens = {added["id"]: added["content"] for added in content["added_tokens"]}
    tokens |= {id: token for token, id in content["model"]["vocab"].items()}
    for id, token in enumerate(vocabulary.tokens):
        is_known = token and vocabulary.ids[token] == id  # not repeated later
        if is_known and tokens.get(id, "").strip() != token:
            raise UserError(
                f"{vocabulary.path}: token {id} is {token!r}, but {tokens.get(id)!r} in "
                f"{path}; move away the one that does not belong to the model"
            )


def to_json(vocabulary: Vocabulary, flags: Mapping[str, bool], longest: int) -> str:
    """The file.

    Args:
        flags: the resolved do_lower_case, strip_accents and split_cjk.
        longest: how many characters a word may have that is not unknown.
    """
    unknown = vocabulary.tokens[vocabulary.unk_id]
    made = tokenizers.Tokenizer(
        models.WordPiece(
            vocabulary.ids, unk_token=unknown, max_input_chars_per_word=longest
        )
    )
    made.normalizer = normalizers.BertNormalizer(
        lowercase=flags["do_lower_case"],
        strip_accents=flags["strip_accents"],
        handle_chinese_chars=flags["split_cjk"],
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = tokenizer_json.rows(vocabulary)
    return tokenizer_json.text_of(made, tokenizer_json.special_tokens(vocabulary))
