"""Files, local or remote: they appear whole, have one writer, and are strictly UTF-8."""
