"""Does what text/ does in TensorFlow graphs, for SavedModels: tokenizes, packs, answers."""
