"""Turns gradients into updates, by the schedules of the releases."""
