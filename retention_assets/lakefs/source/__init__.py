"""Reads a lakeFS repository's references, staged list and tables from its server, a dump or the object store."""
