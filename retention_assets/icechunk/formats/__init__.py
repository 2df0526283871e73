"""Icechunk's files, formats 1 and 2: bytes to dataclasses and Arrow, and back.

What a file says belongs here: ids and names, the header and its zstd frame, the repo object, snapshots, manifests,
transaction logs, references, metadata values. Fetching them and what follows from them does not: no network, no Spark.
"""
