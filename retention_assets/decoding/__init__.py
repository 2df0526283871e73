"""From bytes to Arrow columns: what the formats of both systems share."""
