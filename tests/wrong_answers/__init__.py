"""For each exercise the mistakes that people make: `WRONG[exercise][name] = (answer, words of its hint)`."""
