"""Says under which name this recipe is now."""

import sys

if __name__ == "__main__":
    sys.exit("run_suite.py: is now python -m recipes.suite, with the same flags")
