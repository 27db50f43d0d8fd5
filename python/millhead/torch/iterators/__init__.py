"""The iterators behind DataLoader: in the caller, with workers, by sample, or torch's own."""
