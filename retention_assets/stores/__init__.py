"""The outside world: object stores, lakeFS servers and dumps, the warehouse. No rule of retention lives here."""
