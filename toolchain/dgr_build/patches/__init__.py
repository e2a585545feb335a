"""Patches: a strict parser and an algebra on trees; apply, reverse and verify never touch a working tree."""
