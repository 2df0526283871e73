"""The `retention` command. It parses, calls one function, prints and sets the exit status. It has no retention rule."""
