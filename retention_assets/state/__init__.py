"""Stores the project's own data: warehouse, plans, approvals, lease, ledgers, records, quarantine locations."""
