"""Tests, in folders as the tree has them; those of a script lie beside this file."""

import pathlib

ROOT = pathlib.Path(__file__).parents[1]
# Scripts at the root that only say which recipe they are now.
MOVED = {
    "augment_text": "recipes.augment",
    "run_ablations": "recipes.ablations",
    "run_suite": "recipes.suite",
}
GOLDEN = ROOT / "tests" / "golden"  # computed by released code; its README says how
