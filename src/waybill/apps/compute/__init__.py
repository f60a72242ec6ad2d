"""Compute: an object store with directories, and jobs that run commands over its objects."""
