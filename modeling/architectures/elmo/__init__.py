"""ELMo: LSTMs in both directions, and the characters that the release reads."""
