"""Services that several rooms are given: Events, observables, gates."""
