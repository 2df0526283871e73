"""What both systems share and nothing else knows: states, guards, columns of bytes."""
