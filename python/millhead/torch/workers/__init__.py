"""What happens inside worker processes, and what the trainer keeps about them."""
