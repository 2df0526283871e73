"""Decodes bytes into Arrow columns. The file formats of lakeFS and Icechunk share these functions."""
