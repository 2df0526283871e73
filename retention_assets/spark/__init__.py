"""How the package uses Spark: its sessions, its frames, and functions on executors."""
