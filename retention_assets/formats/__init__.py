"""Bytes to Arrow and back: tables and records of lakeFS. No network, no Spark; errors name the file."""
