"""Retention policies: rules, holds and policy documents. No code here uses Spark, a store or a clock."""
