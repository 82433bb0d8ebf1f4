"""Draws the places that training masks, next to the network."""
