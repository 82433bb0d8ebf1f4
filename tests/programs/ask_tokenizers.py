"""What transformers makes of vocabularies and texts, in a process of its own.

    python ask_tokenizers.py FOLDER

FOLDER/make.json has for each folder to make the class of a tokenizer and its arguments; a
.model among them is read. FOLDER/split.json lists folders whose AutoTokenizer splits the
texts of FOLDER/texts.json: the answer is ids.json there.
"""

import json
import pathlib
import sys

import transformers
from sentencepiece import sentencepiece_model_pb2


def make(folder, name, arguments):
    if path := arguments.pop("model", None):
        content = pathlib.Path(path).read_bytes()
        model = sentencepiece_model_pb2.ModelProto.FromString(content)
        arguments["vocab"] = [(piece.piece, piece.score) for piece in model.pieces]
        charsmap = model.normalizer_spec.precompiled_charsmap
        arguments["_spm_precompiled_charsmap"] = charsmap
        if name == "T5Tokenizer":
            numbers = reversed(range(100))
            arguments["vocab"] += [(f"<extra_id_{n}>", 0.0) for n in numbers]
    getattr(transformers, name)(**arguments).save_pretrained(folder)


def main(folder):
    for name, (kind, arguments) in json.loads(
        (folder / "make.json").read_text()
    ).items():
        make(folder / name, kind, arguments)
    texts = json.loads((folder / "texts.json").read_text())
    for name in json.loads((folder / "split.json").read_text()):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        (folder / name / "ids.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
