"""Reruns tables of papers: what to compare, in which processes, and on which page."""
