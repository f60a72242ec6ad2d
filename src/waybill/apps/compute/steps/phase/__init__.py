"""Steps of a phase."""
