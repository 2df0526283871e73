"""Code that lakeFS and Icechunk share: object states, guards, the age rule, settling."""
