"""Lists Korean tasks with their files, columns, labels and scores, as glue.py does GLUE's.

Files are as their owners publish them. KLUE's test sets have no published labels, so
its dev sets are used for both. NSMC has no dev set, so its test set is used for both.

Source: KLUE-benchmark/KLUE-baseline@443c38b klue_baseline/data/ and metrics/functional.py;
    kakaobrain/kor-nlu-datasets (KorNLI, KorSTS); e9t/nsmc.
"""

from text.tasks.glue import NLI_LABELS, DataSet, Table


def _klue(name, text_a, text_b, label, labels, scores) -> DataSet:
    """A task of KLUE 1.1, whose files are JSON lists."""
    train, dev = (
        Table(f"{name}-v1.1_{split}.json", text_a, text_b, label)
        for split in ("train", "dev")
    )
    return DataSet(train, {"dev": dev}, {"test": dev}, labels, scores, {})


_NSMC = Table("ratings_train.txt", "document", None, "label")
_NSMC_TEST = _NSMC._replace(file="ratings_test.txt")
_KORNLI = Table(
    "multinli.train.ko.tsv",
    "sentence1",
    "sentence2",
    "gold_label",
    more_files=("snli_1.0_train.ko.tsv",),
)
_KORSTS = Table("sts-train.tsv", "sentence1", "sentence2", "score")
_YNAT_LABELS = ("정치", "경제", "사회", "생활문화", "세계", "IT과학", "스포츠")

# The first score compares runs: for KLUE's, those of its paper (arXiv:2105.09680, table 3).
TASKS = {
    "nsmc": DataSet(
        _NSMC,
        {"dev": _NSMC_TEST},
        {"test": _NSMC_TEST},
        ("0", "1"),
        ("accuracy",),
        {},
        label_names=("negative", "positive"),
    ),
    "kornli": DataSet(
        _KORNLI,
        {"dev": _KORNLI._replace(file="xnli.dev.ko.tsv", more_files=())},
        {"test": _KORNLI._replace(file="xnli.test.ko.tsv", more_files=())},
        NLI_LABELS,
        ("accuracy",),
        {},
    ),
    "korsts": DataSet(
        _KORSTS,
        {"dev": _KORSTS._replace(file="sts-dev.tsv")},
        {"test": _KORSTS._replace(file="sts-test.tsv")},
        None,
        ("spearman", "pearson"),
        {},
        bounds=(0.0, 5.0),
    ),
    "ynat": _klue(
        "ynat", "title", None, "label", _YNAT_LABELS, ("f1_macro", "accuracy")
    ),
    "klue_nli": _klue(
        "klue-nli", "premise", "hypothesis", "gold_label", NLI_LABELS, ("accuracy",)
    ),
    "klue_sts": _klue(
        "klue-sts",
        "sentence1",
        "sentence2",
        "labels.real-label",
        None,
        ("pearson", "f1_of_alike"),
    )._replace(bounds=(0.0, 5.0)),
}
