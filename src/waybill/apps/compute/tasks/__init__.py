"""Tasks: one process for each key, in sandboxes that are reused.

slots       how many tasks run at once, whose turn it is, and when one must stop
workspace   a sandbox with its folders, for one slot of a job's phase
running     one task: its input, its command, its error
publishing  what tasks have put out, made durable and visible together
local_http  http://localhost:80/ inside a task
tools/      mpipe, mcat, mtee, msplit, maggr, muntar
"""
