"""Decides which Icechunk snapshots expire, which edits an expiration makes, and what a garbage collection keeps.

The functions are pure. They take the repo object, or references with snapshots, in formats 1 and 2. They do not read,
write or delete files.
"""
