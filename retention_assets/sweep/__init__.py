"""Executes plans: approval, liveness checks, deletion, ledger; and undoes sweeps: restore, purge, verification."""
