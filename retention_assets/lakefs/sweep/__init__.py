"""Plans sweeps of a lakeFS repository, checks liveness just before deleting, and verifies the result."""
