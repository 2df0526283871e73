"""Inventories of a store's objects that the store itself delivers (Amazon S3 Inventory)."""
