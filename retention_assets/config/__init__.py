"""What `retention.yaml` says: repositories, their settings, limits and spans of time."""
