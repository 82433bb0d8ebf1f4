"""create_pretraining_data.py with pieces so small that a short text makes many tasks."""

import command_line
import create_pretraining_data
from text.corpus import text_format
from text.generation import stages
from text.records import descriptions

# Outside the guard below, as worker processes import this file and need the same.
descriptions.OFFSET_EVERY = 8
text_format.PIECE_BYTES = 2_000
stages.BLOCK_TOKENS = 1_000
stages.SEGMENT_ROWS = 40
stages.BATCH_ROWS = 16

if __name__ == "__main__":
    command_line.run(create_pretraining_data.main, create_pretraining_data.Options)
