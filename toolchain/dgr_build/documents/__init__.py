"""Typed documents: frozen pydantic models of the files that people and the tool write."""
