"""Which spans of a corpus make a row, how it is packed, and what is masked."""
