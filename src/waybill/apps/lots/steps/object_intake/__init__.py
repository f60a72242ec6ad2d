"""The step of an object of another application that arrives."""
