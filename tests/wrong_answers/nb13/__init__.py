"""Wrong answers to the exercises of notebook 13: half-repairs that people make."""

from tests.wrong_answers.nb13 import kept, modes, values, weights

WRONG = {**values.WRONG, **modes.WRONG, **weights.WRONG, **kept.WRONG}
