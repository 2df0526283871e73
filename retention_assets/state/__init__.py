"""The state that the project stores: plans, approvals, leases, ledgers, memory, policies, records, quarantine."""
