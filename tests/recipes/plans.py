"""Plans of small tables, and the flags of their cells."""

import pytest

import extensions
from recipes import ablations
from recipes.comparisons import cells, plan
from recipes.comparisons.paper_tables import TABLES

needs_all_relatives = pytest.mark.skipif(
    bool(extensions.hint()), reason="a folder in family/ is not there"
)
ALL_TASKS = ["SST-2:SST-2", "SQuAD:questions", "NER:names", "UD:trees"]


def tables() -> list:
    """All, as parameters of a test; two compare relatives."""
    of_relatives = ("family", "modern_bert")
    return [
        pytest.param(name, marks=needs_all_relatives if name in of_relatives else ())
        for name in TABLES
    ]


def given(**changes):
    return ablations.Options(
        **{
            "table": ["5"],
            "input_file": ["text.txt"],
            "held_out_file": ["held_out.txt"],
            "vocab_file": "vocab.txt",
            "tasks": ALL_TASKS,
        }
        | changes
    )


def planned(**changes) -> plan.Plan:
    return ablations.make_plan(given(**changes))


def flag(cell: cells.Cell, name: str) -> str | None:
    """The value that counts: the last one."""
    values = [w.partition("=")[2] for w in cell.words if w.startswith(f"--{name}=")]
    return values[-1] if values else None


def by_name(found: plan.Plan) -> dict[str, cells.Cell]:
    return {cell.name: cell for cell in found.cells}
