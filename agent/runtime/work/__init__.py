"""Views of pods, the relist and the state of the runtime."""
