"""Learns vocabularies from text: one learner for each kind that build_vocab.py writes."""
