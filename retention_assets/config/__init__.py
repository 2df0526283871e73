"""The configuration file `retention.yaml`: the repositories with their settings, limits and durations."""
