"""Steps of a reducer."""
