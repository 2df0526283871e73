"""Which versions are kept: pure walks over commits. No Spark, no Dagster, no store, no clock."""
