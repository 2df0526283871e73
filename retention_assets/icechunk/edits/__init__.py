"""The edits of an Icechunk repository: stored with a plan, and published with conditional writes."""
