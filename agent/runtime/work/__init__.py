"""Views of pods, the observer that keeps them fresh, and the state of the runtime."""
