"""`bench services`: our proxy beside upstream's on the same API objects, each in a network namespace of its own."""
