"""Names of objects: which of them lakeFS generates, the time inside them, and their canonical form."""
