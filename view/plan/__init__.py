"""What the page shows, made of objects and answers. Pure: no I/O, no clock, no await."""
