"""Recipes: quantisation and placement as data; which stage owns which layers on which lane."""
