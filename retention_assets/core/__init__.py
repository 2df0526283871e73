"""The rules that lakeFS and Icechunk share: states, guards, the age rule, settling. Most are Spark expressions."""
