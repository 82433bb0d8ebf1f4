"""create_pretraining_data.py with pieces so small that a short text makes many tasks."""

import create_pretraining_data
import options
from text import descriptions, documents, generation

# Outside the guard below, as worker processes import this file and need the same.
descriptions.OFFSET_EVERY = 8
documents._PIECE_BYTES = 2_000
generation._BLOCK_TOKENS = 1_000
generation._SEGMENT_ROWS = 40
generation._BATCH_ROWS = 16

if __name__ == "__main__":
    options.run(create_pretraining_data.main, create_pretraining_data.Options)
