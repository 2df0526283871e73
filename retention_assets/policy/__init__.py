"""What to keep: rules, holds and their reading from text. Pure: no Spark, no store, no clock."""
