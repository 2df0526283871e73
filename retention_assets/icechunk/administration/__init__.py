"""The changes that a person makes to an Icechunk repository: branches, tags, status, format."""
