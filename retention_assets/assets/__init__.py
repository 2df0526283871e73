"""The Dagster code: thin assets, checks, jobs, sensors, resources and the IO manager. It has no retention rules."""
