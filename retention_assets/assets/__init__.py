"""What Dagster runs: thin assets, their checks, the IO manager and the resources. No rule lives here."""
