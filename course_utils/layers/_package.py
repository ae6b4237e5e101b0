"""The name under which every layer of the package is registered."""

PACKAGE = "course_utils"
