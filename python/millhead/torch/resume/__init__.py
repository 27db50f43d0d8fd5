"""Positions in an epoch: saved, checked and restored."""
