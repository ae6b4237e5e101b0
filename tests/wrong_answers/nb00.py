"""Wrong answers to the exercise of notebook 00."""

WRONG = {
    "double": {
        "squares": (lambda x: x * x, "squared: multiply by 2"),
        "returns x": (lambda x: 1 * x, "comes back as it was"),
        "adds 2": (lambda x: x + 2, "2 was added"),
    },
}
