"""Text to record files: shards, workers, and how an interrupted run continues."""
