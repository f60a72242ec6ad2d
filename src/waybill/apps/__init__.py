"""Applications: each a folder of its own, none of which imports another."""
