"""Configured repositories, lakeFS or Icechunk: their live objects, and the references of the other repositories."""
