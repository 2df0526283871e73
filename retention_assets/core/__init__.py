"""The rules that lakeFS and Icechunk share: object states, guards, the age rule, settling. Most are for Spark."""
