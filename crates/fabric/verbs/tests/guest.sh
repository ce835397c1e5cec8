#!/bin/bash
# Inside a guest with Soft-RoCE: a test. WORK, HERE and TEST are set by cargo xtask, and UNDER if another program is to run it.
set -eu
cd "$WORK"
exec >guest.log 2>&1
. "$HERE/device.sh"
${UNDER:-} "$TEST" --ignored --nocapture --test-threads 1
