"""Where an Icechunk repository's history and tables come from: the files in its store."""
