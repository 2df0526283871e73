"""Code for repositories of both systems: live objects, references of others, permissions, and housekeeping."""
