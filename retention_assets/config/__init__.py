"""The configuration file `retention.yaml`: repositories, their settings, limits and durations."""
