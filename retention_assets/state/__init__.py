"""What the project records: plans, approvals, lease, ledgers, memory, records, and where the quarantine is."""
