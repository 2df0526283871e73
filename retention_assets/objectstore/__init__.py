"""Object stores: how objects are reached, listed and read. What changes them is in `mutate`."""
