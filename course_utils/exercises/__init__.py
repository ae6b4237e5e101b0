"""Exercises with instant feedback, one module for each notebook: `from course_utils.exercises import nb01`.

Each exercise offers `.check(answer)`, `.hint()`, which tells one more each time, and `.solution()`.
"""
