"""What a person changes in an Icechunk repository: branches, tags, status, format."""
