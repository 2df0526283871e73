"""All of Icechunk: its rules, formats and source, its edits, and how a sweep of it is planned and verified."""
