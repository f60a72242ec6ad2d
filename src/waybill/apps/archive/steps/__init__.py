"""The steps of archive, one module for each work state."""
