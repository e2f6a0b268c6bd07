"""Trunk families: their sizes, their weight names, and their program over a few operations."""
