"""Contains the only code that changes a store: plan, guards, approval, deletion, ledger."""
