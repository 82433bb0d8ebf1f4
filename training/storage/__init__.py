"""What is on disk: checkpoints, what a folder of a run holds, who may write there."""
