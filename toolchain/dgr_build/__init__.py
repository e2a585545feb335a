"""Builds a llama.cpp shard worker from one proven commit, a tiny patch stack and one lane matrix."""
