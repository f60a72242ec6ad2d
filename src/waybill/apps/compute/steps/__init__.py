"""The steps: one folder for each machine, one module for each work state."""
