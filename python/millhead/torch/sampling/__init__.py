"""Samplers and shuffles: which samples make a batch, on which rank."""
