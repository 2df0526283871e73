"""The rules of retention of lakeFS: which commits are active, which objects may go."""
