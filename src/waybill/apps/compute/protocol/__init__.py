"""Manta's protocol, as its official clients speak it: plain HTTP on `/account/area/...`.

app            a request from its first byte to its reply, and every refusal in Manta's shape
requests       a request: its path, query and headers, and its body as it arrives; replies
storage_calls  objects, directories, links, listings
job_calls      jobs
"""
