"""What a network learns from: one file per way of learning, and its losses."""
