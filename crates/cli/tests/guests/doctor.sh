#!/bin/bash
# Inside a guest with Soft-RoCE: what the doctor says to who may do everything, to who may not open the device, and to who may
# lock no memory. WORK, HERE and STENTOR are set by cargo xtask.
set -eu
cd "$WORK"
exec >doctor.log 2>&1
. "$HERE/../../../fabric-verbs/tests/device.sh"
"$STENTOR" doctor --json >all.json
# Nobody finds a program where only its owner may look; exit code 1 is for what has nothing to do with devices.
cp "$STENTOR" /run/stentor
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all"
chmod 600 /dev/infiniband/uverbs0
$nobody /run/stentor doctor --json >closed.json || [ $? = 1 ]
chmod 666 /dev/infiniband/uverbs0
ulimit -l 0
$nobody /run/stentor doctor --json >unlocked.json || [ $? = 1 ]
