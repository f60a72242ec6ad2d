"""What users of archive call: the command line, our API and that of JDMA.

access.py       who may see, get and delete what
quotas.py       the quotas of workspaces
requests.py     PUT, MIGRATE, GET, DELETE, undelete, MOVE, cancel
migrations.py   lists, files, labels, tags, search
"""
