"""Several training processes: who is who, and what they must agree on."""
