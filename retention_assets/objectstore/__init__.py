"""Object stores: access, listing and reading. The code that changes objects is in `mutate`."""
