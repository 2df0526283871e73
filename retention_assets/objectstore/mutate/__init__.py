"""All code that creates, changes or deletes objects in a user's store.

The import contract in pyproject.toml names the modules that may import this package.
"""
