"""BERT's relatives, a folder each; a line here makes one known (see extensions.py).

Of two tokenizers that read a file, that of the later line does.
"""

PACKAGES = (
    "family.roberta",
    "family.albert",
    "family.electra",
    "family.gpt",
    "family.xlnet",
    "family.elmo",
    "family.side_by_side",
    "family.t5",
    "family.modern_bert",
)
