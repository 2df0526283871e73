"""A configured repository of either system: opening it, what it keeps now, what other ones refer to."""
