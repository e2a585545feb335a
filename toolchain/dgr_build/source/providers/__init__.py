"""Providers: each yields an object store that may hold the pin; none of them is trusted."""
