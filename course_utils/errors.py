"""Errors as a notebook shows them: type and message in one line, the same on every machine."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator


def first_sentence(error: BaseException, limit: int = 300) -> str:
    """Give the type of an error and the sentence that matters, in one line.

    The call stack that AutoGraph puts before a message, Keras's list of arguments after it, terminal colors
    and memory addresses are left out.

    Args:
        error: Any exception.
        limit: Longest text, in characters.

    Returns:
        One line without an address or a path.

    Example:
        >>> first_sentence(ValueError("x is 3 at 0x7f00aa: give 4"))
        'ValueError: x is 3 at 0x…: give 4'
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    kind = type(error).__name__
    if "in user code:" in text:
        stack = [line for line in text.splitlines() if not line.startswith(" " * 8)]
        text = next(
            (line.strip() for line in stack if line.strip().startswith(f"{kind}: ")), stack[-1].strip()
        )
    text = re.split(r"\n\s*(?:Arguments received by|Traceback|\[\[)", text)[0]
    text = re.sub(r"0x[0-9a-f]+", "0x…", " ".join(text.split())).removeprefix(f"{kind}: ")
    return f"{kind}: {text[: limit - 1] + '…' if len(text) > limit else text}"


@contextlib.contextmanager
def expected_error(limit: int = 300) -> Iterator[None]:
    """Print the error that the block raises, and raise one where it raises none.

    Args:
        limit: Longest text to print, in characters.

    Raises:
        AssertionError: The block raised nothing, so what the notebook says about it is no longer true.

    Example:
        >>> with expected_error():
        ...     int("four")
        ValueError: invalid literal for int() with base 10: 'four'
    """
    try:
        yield
    except Exception as error:
        print(first_sentence(error, limit))  # noqa: T201 - it stands in for the traceback
    else:
        raise AssertionError("this block was expected to raise an error, and did not")


@contextlib.contextmanager
def hidden_log() -> Iterator[None]:
    """Hide what TensorFlow's C++ part logs in the block: a line with time and path for each op that fails.

    It goes to the process's standard error, past Python. What Python writes to `sys.stderr` in a notebook is
    still shown.

    Example:
        >>> with hidden_log():
        ...     _ = os.write(2, b"W0000 12:34:56 op_kernel.cc:1858] OP_REQUIRES failed")
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
