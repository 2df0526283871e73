"""Reads an Icechunk repository's history and tables from the files in its store."""
