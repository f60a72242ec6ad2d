"""The steps of jobs, one module for each work state."""
