"""The bytes of a record, its description, and batches in a reproducible order."""
