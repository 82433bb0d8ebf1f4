"""Text to ids: the vocabulary, the tokenizer, and its twin in a TensorFlow graph."""
