"""Fakes that interpret: each speaks the Protocol of a real edge and keeps state as the real one would."""
