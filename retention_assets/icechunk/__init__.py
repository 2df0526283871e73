"""All code that is only for Icechunk: rules, file formats, source, edits, and the planning and verifying of sweeps."""
