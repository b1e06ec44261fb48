"""What the page is made of. Values only: what is looked at, and what is answered about that."""
