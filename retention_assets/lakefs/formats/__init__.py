"""The bytes that lakeFS writes: ranges, metaranges, dumps, rules. Source: lakeFS facts."""
