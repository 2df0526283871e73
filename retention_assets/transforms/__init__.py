"""Pure `DataFrame -> DataFrame` functions. No Dagster, no store, no `sparkContext`, no RDD."""
