"""The steps of this machine: one module for each work state."""
