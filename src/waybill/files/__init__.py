"""Files: what applications do with files and folders on disks and among the objects.

folders.py   the folders of a record's attempts: published, measured, removed
"""
