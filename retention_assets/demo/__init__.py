"""Puts the sample repositories of the demo in place."""
