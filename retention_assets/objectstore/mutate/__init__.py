"""All that creates, changes or deletes objects in a user's store. Only named modules may import it."""
