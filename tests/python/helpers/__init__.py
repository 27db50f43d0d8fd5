"""What several tests and test programs share."""
