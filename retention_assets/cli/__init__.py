"""The `retention` command: it parses, calls one function, prints, and sets the exit status. No rule lives here."""
