"""Code that lakeFS and Icechunk share: object states, guards, age rule, and columns of bytes."""
