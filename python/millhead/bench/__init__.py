"""`millhead bench`: a dataset under several loader configurations."""
