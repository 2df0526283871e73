"""All that we write for ourselves: warehouse, plans, approvals, lease, ledgers, records, quarantine places."""
