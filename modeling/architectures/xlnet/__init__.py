"""XLNet: relative attention in two streams, with memory."""
