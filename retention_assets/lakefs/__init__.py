"""All of lakeFS: its rules, formats and source, and how a sweep of it is planned, checked and verified."""
