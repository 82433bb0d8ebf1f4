"""Says under which name this recipe is now."""

import sys

if __name__ == "__main__":
    sys.exit("augment_text.py: is now python -m recipes.augment, with the same flags")
