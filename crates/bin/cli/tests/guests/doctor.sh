#!/bin/bash
# Inside a guest with Soft-RoCE: what the doctor says to who may do everything, to who may not open the device, and to who may
# lock no memory. WORK, HERE and STENTOR are set by cargo xtask.
set -eu
cd "$WORK"
exec >doctor.log 2>&1
. "$HERE/../../../../fabric/verbs/tests/device.sh"
"$STENTOR" doctor --json >all.json
# Root without capabilities. Another user may not look into the guest's file system where the host's root folder is root's alone.
# Exit code 1 is for what has nothing to do with devices.
cp "$STENTOR" /run/stentor
nobody="setpriv --inh-caps=-all --bounding-set=-all"
chown 65534:65534 /dev/infiniband/uverbs0
chmod 600 /dev/infiniband/uverbs0
$nobody /run/stentor doctor --json >closed.json || [ $? = 1 ]
chmod 666 /dev/infiniband/uverbs0
ulimit -l 0
$nobody /run/stentor doctor --json >unlocked.json || [ $? = 1 ]
