"""Tests of the course; `python -m tests.refresh` is the authors' tool for notebooks."""
