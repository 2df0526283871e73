"""Where a lakeFS repository's references, staged list and tables come from: the server, a dump, the store."""
