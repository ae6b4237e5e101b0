"""Keep TensorFlow's log lines out of notebooks. Import it before TensorFlow.

TensorFlow writes notices to standard error while it loads: which processor features it was built for,
and that oneDNN is on. They name times and addresses, so they differ on each run and would make a
notebook's outputs change. `TF_CPP_MIN_LOG_LEVEL` hides the first kind (level 1 keeps warnings and errors),
`TF_ENABLE_ONEDNN_OPTS=0` the second; neither is enough alone, and both are read once, when TensorFlow loads.
Without oneDNN sums are also taken in the same order on every x86 processor.

Only the course's notebooks import this module: `course_utils` itself never changes your settings.
A value that is set already stays.

Example:
    >>> import course_utils.quiet
    >>> sorted(course_utils.quiet.SETTINGS)
    ['TF_CPP_MIN_LOG_LEVEL', 'TF_ENABLE_ONEDNN_OPTS']
"""

import os
import sys

#: The environment variables that are set, with their values.
SETTINGS = {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}

if "tensorflow" not in sys.modules:  # afterwards they have no effect, and would only mislead a reader
    for _name, _value in SETTINGS.items():
        os.environ.setdefault(_name, _value)
