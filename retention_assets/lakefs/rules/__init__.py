"""The retention rules for lakeFS: which commits are active, and which objects may be deleted."""
