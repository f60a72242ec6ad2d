"""Steps of a job."""
