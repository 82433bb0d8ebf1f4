"""The papers' tables: what each row changes, and the numbers that were published.

Sources: BERT, arXiv:1810.04805v2, tables 5 to 8 and figure 5; RoBERTa, arXiv:1907.11692,
tables 1 and 2; ELECTRA, arXiv:2003.10555, table 1. What has no numbers says so.
"""

from typing import NamedTuple

from recipes.comparisons.variants import (
    ALBERT,
    BERT,
    BILSTM,
    DYNAMIC,
    ELECTRA,
    ELMO,
    FULL_SENTENCES,
    GPT,
    LEFT_TO_RIGHT,
    MODERN_BERT,
    NO_NSP,
    NOT_PRETRAINED,
    SIDE_BY_SIDE,
    T5,
    XLNET,
    Head,
    Variant,
    electra,
    features,
    with_instances,
    with_mask_shares,
    with_masking_rate,
    with_size,
)

_NOT_SAID = (
    "The paper does not say which token its left-to-right classifiers read. Here it is the "
    "last, because [CLS] sees only itself."
)


_BERT_SCALE = (
    "the paper: 12 layers of 768 with 12 heads, if nothing else is said; 30,522 pieces; "
    "BooksCorpus and Wikipedia, 3.3 billion words; a million updates of 256 rows of 128, "
    "then 512 tokens"
)
_ROBERTA_SCALE = (
    "the paper: 12 layers of 768 with 12 heads; about 50,000 byte-level pieces; "
    "BooksCorpus and Wikipedia, 16 GB; a million updates of 256 rows of 512 tokens"
)


class PaperRow(NamedTuple):
    """A row of a table.

    Attributes:
        label: names it; keys of the config in braces become their values.
        published: the paper's number in each of the table's published columns, or None.
    """

    label: str
    variant: Variant
    published: tuple[float | None, ...] = ()
    head: Head = Head()


class Reading(NamedTuple):
    """A use of the encoders of all rows; a column for each task of these kinds.

    Attributes:
        same_time: whether each encoder is pre-trained as long as that of the first row,
            in place of as many updates.
    """

    title: str = ""
    head: Head = Head()
    kinds: tuple[str, ...] = ("classification", "spans", "tags")
    same_time: bool = False


class PaperTable(NamedTuple):
    """A table of a paper.

    Attributes:
        title: what it compares.
        paper: where it was published.
        published: the paper's columns.
        rows: what is compared.
        readings: how each row's encoder is used.
        note: what a reader must know.
        scale: of the paper's runs.
        perplexity: whether the pre-training's perplexity is a column.
        costs: whether there are columns of the encoder's parameters, and of the speed and
            memory of its pre-training.
        steps: shares of the updates at which encoders are compared: a figure.
    """

    title: str
    paper: str
    published: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    readings: tuple[Reading, ...] = (Reading(),)
    note: str = ""
    scale: str = _BERT_SCALE
    perplexity: bool = False
    costs: bool = False
    steps: tuple[float, ...] = ()

    def numbers_of(self, row: PaperRow) -> dict[str, float]:
        """The paper's numbers of a row, by column."""
        numbers = zip(self.published, row.published, strict=bool(row.published))
        return {column: number for column, number in numbers if number is not None}


_SIZE = "L={num_hidden_layers}, H={hidden_size}, A={num_attention_heads}"


def _masks(mask, keep, random, *published):
    label = f"{mask} % [MASK], {keep} % same, {random} % random"
    return PaperRow(label, with_mask_shares(mask, keep, random), published)


# === The tables =======================================================================

_TABLES = {
    "5": PaperTable(
        "Pre-training tasks",
        "BERT, table 5",
        ("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD 1.1"),
        (
            PaperRow("BERT", BERT, (84.4, 88.4, 86.7, 92.7, 88.5)),
            PaperRow("No NSP", NO_NSP, (83.9, 84.9, 86.5, 92.6, 87.9)),
            PaperRow(
                "Left-to-right, no NSP", LEFT_TO_RIGHT, (82.1, 84.3, 77.5, 92.1, 77.8)
            ),
            PaperRow("+ BiLSTM", LEFT_TO_RIGHT, (82.1, 84.1, 75.7, 91.6, 84.9), BILSTM),
        ),
        note=f"{_NOT_SAID} Nor does it say the size of the BiLSTM: here, as in its section "
        "5.3, two layers as wide as the encoder.",
    ),
    "6": PaperTable(
        "Model size",
        "BERT, table 6",
        ("perplexity", "MNLI-m", "MRPC", "SST-2"),
        (
            PaperRow(
                _SIZE, with_size("quarter_layers", 1 / 4), (5.84, 77.9, 79.8, 88.4)
            ),
            PaperRow(
                _SIZE,
                with_size("half_layers_few_heads", 1 / 2, heads=1 / 4),
                (5.24, 80.6, 82.2, 90.7),
            ),
            PaperRow(_SIZE, with_size("half_layers", 1 / 2), (4.68, 81.9, 84.8, 91.3)),
            PaperRow(_SIZE, BERT, (3.99, 84.4, 86.7, 92.9)),
            PaperRow(_SIZE, with_size("wide", 1, 4 / 3), (3.54, 85.7, 86.9, 93.3)),
            PaperRow(
                _SIZE,
                with_size("double_layers_wide", 2, 4 / 3),
                (3.23, 86.6, 87.8, 93.7),
            ),
        ),
        note="Sizes are relative to the config; for BERT-Base, they are the paper's. The "
        "heads keep their size, so a width is rounded up to whole heads. The perplexity is "
        "that of the masked words of the held-out text.",
        perplexity=True,
    ),
    "7": PaperTable(
        "Features for named entities",
        "BERT, table 7 (dev F1 on CoNLL-2003, BERT-Base)",
        ("NER",),
        (
            PaperRow("Fine-tuned", BERT, (96.4,)),
            PaperRow("Embeddings", BERT, (91.0,), features("embeddings")),
            PaperRow("Second-to-last layer", BERT, (95.6,), features("second_to_last")),
            PaperRow("Last layer", BERT, (94.9,), features("last")),
            PaperRow(
                "Weighted sum of the last four",
                BERT,
                (95.9,),
                features("weighted_sum_last_four"),
            ),
            PaperRow(
                "Last four, concatenated", BERT, (96.1,), features("concat_last_four")
            ),
            PaperRow(
                "Weighted sum of all layers",
                BERT,
                (95.5,),
                features("weighted_sum_all"),
            ),
        ),
        readings=(Reading(kinds=("tags",)),),
    ),
    "8": PaperTable(
        "Masking",
        "BERT, table 8",
        ("MNLI", "NER fine-tuned", "NER features"),
        (
            _masks(80, 10, 10, 84.2, 95.4, 94.9),
            _masks(100, 0, 0, 84.3, 94.9, 94.0),
            _masks(80, 0, 20, 84.1, 95.2, 94.6),
            _masks(80, 20, 0, 84.4, 95.2, 94.7),
            _masks(0, 20, 80, 83.7, 94.8, 94.6),
            _masks(0, 0, 100, 83.6, 94.9, 94.6),
        ),
        readings=(
            Reading(kinds=("classification", "tags")),
            Reading("features", features("concat_last_four"), ("tags",)),
        ),
    ),
    "figure5": PaperTable(
        "Number of pre-training steps",
        "BERT, figure 5",
        (),
        (PaperRow("Masked words", BERT), PaperRow("Left to right", LEFT_TO_RIGHT)),
        note="The paper prints no numbers. It reports that BERT-Base gains almost 1.0 "
        "point of accuracy on MNLI between 500,000 and 1,000,000 steps, and that masked "
        f"words overtake left-to-right almost at once. {_NOT_SAID}",
        steps=(0.2, 0.4, 0.6, 0.8, 1.0),
    ),
    "directions": PaperTable(
        "Both sides and two sides",
        "BERT, section 5.1",
        (),
        (
            PaperRow("Masked words, no NSP", NO_NSP),
            PaperRow("Left to right", LEFT_TO_RIGHT),
            PaperRow("Left to right and right to left, side by side", SIDE_BY_SIDE),
        ),
        note="The paper prints no numbers. It says that the pair is twice as expensive as "
        "one encoder that sees both sides, and less powerful. Here the two stacks share "
        "their embeddings, and heads read the outputs of both, concatenated. "
        f"{_NOT_SAID}",
        costs=True,
    ),
    "masking_rate": PaperTable(
        "Share of the tokens to predict",
        "Wettig et al., arXiv:2202.08005",
        (),
        tuple(
            PaperRow(f"{rate} %", with_masking_rate(rate))
            for rate in (5, 10, 15, 20, 30, 40)
        ),
        note="BERT has 15 %. The paper finds 40 % better for models of BERT-Large’s size, "
        "and less for smaller ones; its numbers are of another recipe and are not "
        "repeated here. Rows have as many more or fewer predictions as the rate asks for.",
        scale="the paper: BERT-Large’s size and smaller, with larger batches and fewer "
        "updates",
    ),
    "roberta1": PaperTable(
        "Static and dynamic masks",
        "RoBERTa, table 1",
        ("SQuAD 2.0", "MNLI-m", "SST-2"),
        (
            PaperRow("Static", BERT, (78.3, 84.3, 92.5)),
            PaperRow("Dynamic", DYNAMIC, (78.7, 84.0, 92.9)),
        ),
        note="Static masks differ between the passes over the text (--dupe_factor).",
        scale=_ROBERTA_SCALE,
    ),
    "roberta2": PaperTable(
        "Rows of records",
        "RoBERTa, table 2",
        ("SQuAD 1.1", "SQuAD 2.0", "MNLI-m", "SST-2", "RACE"),
        (
            PaperRow("Pairs of spans, NSP", DYNAMIC, (90.4, 78.7, 84.0, 92.9, 64.2)),
            PaperRow("Full sentences", FULL_SENTENCES, (90.4, 79.1, 84.7, 92.5, 64.8)),
            PaperRow(
                "Sentences of one document",
                with_instances("doc_sentences"),
                (90.6, 79.7, 84.7, 92.7, 65.6),
            ),
        ),
        note="The table's other row, pairs of single sentences, has no counterpart here. "
        "Batches have the same number of rows, not of tokens.",
        scale=_ROBERTA_SCALE,
    ),
    "electra": PaperTable(
        "Masked words and replaced tokens",
        "ELECTRA, table 1 (mean of GLUE's dev sets)",
        ("GLUE, small", "GLUE, base"),
        (
            PaperRow(
                "Masked words", electra("electra_masked_lm", "masked_lm"), (75.1, 82.2)
            ),
            PaperRow(
                "Replaced tokens", electra("electra", "replaced_tokens"), (79.9, 85.1)
            ),
        ),
        note="Both have the same encoder, rows and number of updates. The generator makes "
        "an update longer.",
        scale="the paper: small has 12 layers of 256 and a million updates of 128 rows of "
        "128 tokens, base 12 layers of 768 and 766,000 updates of 256 rows of 512",
    ),
    "family": PaperTable(
        "What BERT is compared with",
        "no paper has this table",
        (),
        (
            PaperRow("BERT", BERT),
            PaperRow("No NSP", NO_NSP),
            PaperRow("Left-to-right, no NSP", LEFT_TO_RIGHT),
            PaperRow("ELMo, frozen, + BiLSTM", ELMO, (), features("mix")),
            PaperRow("GPT", GPT),
            PaperRow("ELECTRA", ELECTRA),
            PaperRow("ALBERT", ALBERT),
            PaperRow("T5, its encoder", T5),
            PaperRow("XLNet", XLNET),
        ),
        readings=(Reading(), Reading("same time", same_time=True)),
        note="All have the layers, width, text and vocabulary of the config, and the same "
        "number of updates; “same time” is as long as BERT took for its updates, with more "
        "or fewer of them. But ELMo always has two layers of LSTMs with four cells for "
        "each output; a BiLSTM reads a learned mix of its outputs. ALBERT’s layers share "
        "their weights; its table of words and ELECTRA’s are a quarter as wide as the "
        "encoder. T5 is used without its decoder, which would write the answers; heads for "
        "whole texts read the mean. Parameters are the encoder’s, in millions; memory is "
        "the most that the process of a pre-training took, in GB.",
        scale="the papers: different texts, sizes and numbers of updates each",
        costs=True,
    ),
    "modern_bert": PaperTable(
        "BERT and ModernBERT",
        "no paper has this table",
        (),
        (PaperRow("BERT", FULL_SENTENCES), PaperRow("ModernBERT", MODERN_BERT)),
        readings=(Reading(), Reading("same time", same_time=True)),
        note="Both learn masked words from the same rows of full sentences, with the "
        "vocabulary, layers, width and heads of the config. ModernBERT’s gated layers have "
        "two thirds of the inner width, and so as many weights; “same time” is as long as "
        "BERT took for its updates. Parameters are the encoder’s, in millions; memory is "
        "the most that the process of a pre-training took, in GB.",
        scale="ModernBERT’s paper, arXiv:2412.13663: 22 layers of 768; 2 trillion tokens; "
        "GLUE, retrieval and code, not these tasks",
        perplexity=True,
        costs=True,
    ),
}

# A row that says what pre-training is worth.
_BASELINE = PaperRow("Not pre-trained", NOT_PRETRAINED)
TABLES = {
    name: table._replace(rows=(*table.rows, _BASELINE))
    for name, table in _TABLES.items()
}
