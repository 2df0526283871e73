"""What Icechunk's histories become: which snapshots expire, what is written for it, and what a collection keeps.

Pure functions over the repo object and over references with snapshots, formats 1 and 2. Reading and writing files does
not belong here, nor does deleting them.
"""
