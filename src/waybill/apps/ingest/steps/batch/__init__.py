"""The steps of batches, one module for each work state."""
