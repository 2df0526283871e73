"""Plans sweeps of a lakeFS repository, compares plans, checks liveness just before deleting, and verifies sweeps."""
