"""Networks made of keras.layers and keras.ops, independent of text, files and backend."""
