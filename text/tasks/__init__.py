"""What fine-tuning tasks need of text: windows and spans, tags, [MASK]."""
