"""Plans, sweeps and verifies Icechunk repositories. The rules are in `rules`, the edits of the history in `edits`."""
