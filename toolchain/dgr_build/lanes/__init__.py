"""Lanes: one matrix row becomes an environment, a configured build, and an inspected worker binary."""
