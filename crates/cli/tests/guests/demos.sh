#!/bin/bash
# Inside a guest with Soft-RoCE: the demos on verbs, one group with its leader killed half-way, and the broadcast with a process
# that lies. WORK, HERE and STENTOR are set by cargo xtask.
set -eu
cd "$WORK"
exec >demos.log 2>&1
. "$HERE/../../../fabric-verbs/tests/device.sh"
"$STENTOR" demo --fabric verbs --groups 1 --messages-limit 400 --keep "$WORK/demo"
"$STENTOR" demo --neb --fabric verbs --messages-limit 200 --keep "$WORK/neb"
