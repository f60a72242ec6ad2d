"""Files: what applications do with files and folders on disks and among the objects.

names.py              names of files that others send: which are accepted
folders.py            the folders of a record's attempts: published, measured, removed
containers/           zips and tars: read without trust, written as streams
gathered_files.py     many files into one folder, several at a time, each compared with what was promised
staged_uploads.py     single files that users send, until a record refers to them
staged_content.py     all files of something that another service sends, until it is stored
unneeded_objects.py   maintenance routines that remove objects which nobody refers to
"""
