"""T5: an encoder, and the decoder that reads it."""
