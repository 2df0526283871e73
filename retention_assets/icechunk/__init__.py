"""All code that is only for Icechunk: rules, file formats, source, edits, plans, sweeps and verifications."""
