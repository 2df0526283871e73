"""Reads and writes Icechunk's files, formats 1 and 2: bytes to dataclasses and Arrow, and back.

The package covers ids and names, the header and its zstd frame, the repo object, snapshots, manifests, transaction
logs, references and metadata values. It does not fetch files or decide what to do with them: no network, no Spark.
"""
