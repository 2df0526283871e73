"""Plans, changes and verifies Icechunk repositories: references and snapshots, then files. The rules are in `rules`."""
