"""File sets on their way to external storage and back, proven before anything is deleted.

files/      the files of a user: listed, locked, packed into archives, restored
storages/   where archives are kept: a directory, S3, FTP, tape
"""
