"""Items of any iterable, made ahead of the loop that uses them: ``millhead.prefetch``."""
