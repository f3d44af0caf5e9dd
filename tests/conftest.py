"""What holds for every test."""

import os
import signal
import tempfile

from hypothesis import settings

# Servers that tests start shall not remember what they measured in the home of whoever runs the tests.
_STATE = tempfile.TemporaryDirectory(prefix="moorage-tests-")
os.environ["XDG_STATE_HOME"] = _STATE.name

# In the background of a script SIGINT is ignored, and so it would be by all processes that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `make test` tries the same examples for everybody: a failure is a change's own. `make soak` looks for new ones.
settings.register_profile("same", derandomize=True)
if "TEST_EXAMPLES" not in os.environ:
    settings.load_profile("same")
