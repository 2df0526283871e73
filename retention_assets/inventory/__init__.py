"""What lies in a store: an inventory that the store delivered, and what is listed beside an older one."""
