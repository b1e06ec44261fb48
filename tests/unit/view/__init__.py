"""Tests of `view/`: the plans, the board, the server over a real socket, and the page in a real browser."""
