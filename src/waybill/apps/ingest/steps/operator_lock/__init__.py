"""The step of operator locks."""
