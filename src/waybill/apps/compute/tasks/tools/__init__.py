"""The tools of tasks. `tool.py` runs inside the sandbox, with the system's Python and nothing else."""
