"""Answers from the warehouse why an object is kept or gone, and how repositories stand. Without Spark and Dagster."""
