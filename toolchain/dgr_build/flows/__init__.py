"""Flows: the few stories that cross rooms, such as building a lane from a fresh clone."""
