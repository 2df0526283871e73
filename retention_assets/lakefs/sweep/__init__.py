"""Planning a lakeFS repository's deletion, what is live just before it, and the proof after it."""
