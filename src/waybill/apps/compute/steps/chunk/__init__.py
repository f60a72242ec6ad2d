"""Steps of a chunk."""
