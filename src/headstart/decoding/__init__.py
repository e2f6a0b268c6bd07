"""Drafters, trees, verification, the sampling law and the policy. No files, no threads, no model."""
