"""The report of a plan: one page without network. `figures` has the numbers, from tables; `page` shows them."""
