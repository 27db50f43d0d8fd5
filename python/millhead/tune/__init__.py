"""`millhead tune`: the best loader settings for a dataset and a training step."""
