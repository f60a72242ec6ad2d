"""The steps of lots, one package for each machine and one module for each work state."""
