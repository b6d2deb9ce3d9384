"""Adapters for training frameworks, one file each, imported by the user together with the framework."""
