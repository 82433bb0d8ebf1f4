"""Pre-training: its records, its run, and its exports."""
