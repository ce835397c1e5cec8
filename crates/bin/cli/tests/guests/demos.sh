#!/bin/bash
# Runs inside a guest with Soft-RoCE: the demos on verbs with one group and with two, in which a leader is killed
# half-way, and the broadcast with a lying process. `cargo xtask` sets WORK, HERE and STENTOR.
set -eu
cd "$WORK"
exec >demos.log 2>&1
. "$HERE/../../../../fabric/verbs/tests/device.sh"
timed() { # WHAT COMMAND...
    local began=$(date +%s%N) what=$1
    shift
    "$@"
    echo "$what: took $((($(date +%s%N) - began) / 1000000)) ms; histories of $(($(cat "$WORK/$what"/*.jsonl | wc -c) / 1024)) KiB"
}
timed one "$STENTOR" demo --fabric verbs --groups 1 --messages-limit 400 --keep "$WORK/one"
timed two "$STENTOR" demo --fabric verbs --messages-limit 200 --keep "$WORK/two"
timed neb "$STENTOR" demo --neb --fabric verbs --messages-limit 200 --keep "$WORK/neb"
