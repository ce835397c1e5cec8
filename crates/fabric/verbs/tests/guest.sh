#!/bin/bash
# Runs a test inside a guest with Soft-RoCE. `cargo xtask` sets WORK, HERE and TEST, and UNDER if another program is to
# run the test.
set -eu
cd "$WORK"
exec >guest.log 2>&1
. "$HERE/device.sh"
${UNDER:-} "$TEST" --ignored --nocapture --test-threads 1
