"""Explains from the warehouse why objects are kept or gone, and reports the status of repositories.

This package needs neither Spark nor Dagster.
"""
