"""Reads the inventories that Amazon S3 delivers: lists of a bucket's objects, as files in a bucket."""
