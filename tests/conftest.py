"""What holds for every test."""

import os
import tempfile

from hypothesis import settings

# Servers that tests start shall not remember what they measured in the home of whoever runs the tests.
_STATE = tempfile.TemporaryDirectory(prefix="moorage-tests-")
os.environ["XDG_STATE_HOME"] = _STATE.name

# `make test` tries the same examples for everybody: a failure is a change's own. `make soak` looks for new ones.
settings.register_profile("same", derandomize=True)
if "MOORAGE_TEST_EXAMPLES" not in os.environ:
    settings.load_profile("same")
