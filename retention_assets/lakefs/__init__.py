"""Everything about lakeFS: retention rules, file formats, data sources, and planning, checking and verifying sweeps."""
