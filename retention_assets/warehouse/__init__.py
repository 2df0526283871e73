"""The warehouse: its directories and documents, how its tables are read and written, and the table cache."""
