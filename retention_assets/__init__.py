"""Retention for versioned data lakes: which versions are kept, what goes, and proof of what was done."""
