"""Says under which name this recipe is now."""

import sys

if __name__ == "__main__":
    sys.exit(
        "run_ablations.py: is now python -m recipes.ablations, with the same flags"
    )
