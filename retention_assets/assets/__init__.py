"""Dagster's part: thin assets, their checks, the IO manager and resources. No retention rule is here."""
