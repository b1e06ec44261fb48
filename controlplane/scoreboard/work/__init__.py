"""Runs what is left of the scoreboard and keeps what came of it. Open board.py first."""
