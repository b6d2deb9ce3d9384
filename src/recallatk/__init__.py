"""Exact recall@K for image retrieval."""
