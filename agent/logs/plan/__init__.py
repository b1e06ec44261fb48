"""Options of a log request, lines in the CRI format, and the plan of a rotation."""
