"""Reads the file formats of lakeFS: ranges, metaranges, dumps, rules. Source: docs/lakefs-formats.md."""
