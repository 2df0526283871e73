"""What changes Icechunk repositories: edits of references and snapshots, then deletions. No rule lives here."""
