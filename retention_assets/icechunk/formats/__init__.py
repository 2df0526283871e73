"""Reads and writes Icechunk's files, formats 1 and 2: bytes to dataclasses and Arrow, and back.

The package covers ids and paths, the header and its zstd frame, the repo object, snapshots, manifests, references,
metadata values and the configuration. It does not fetch files or decide what to do with them: no network, no Spark.
"""
