"""Routes: worker processes, the client that drives them, and the comparison with the whole model."""
