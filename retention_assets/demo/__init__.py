"""The sample repositories: puts them in place."""
