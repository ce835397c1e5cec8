#!/bin/bash
# Runs inside a guest with Soft-RoCE: the output of the doctor for root, for a user that may not open the device, and
# for a user that may lock no memory. `cargo xtask` sets WORK, HERE and STENTOR.
set -eu
cd "$WORK"
exec >doctor.log 2>&1
. "$HERE/../../../../fabric/verbs/tests/device.sh"
"$STENTOR" doctor --json >all.json
# Root without capabilities. Another user may not read the guest's file system if only root may enter the host's root
# folder.
# Exit code 1 is for problems that have nothing to do with devices.
cp "$STENTOR" /run/stentor
nobody="setpriv --inh-caps=-all --bounding-set=-all"
chown 65534:65534 /dev/infiniband/uverbs0
chmod 600 /dev/infiniband/uverbs0
$nobody /run/stentor doctor --json >closed.json || [ $? = 1 ]
chmod 666 /dev/infiniband/uverbs0
ulimit -l 0
$nobody /run/stentor doctor --json >unlocked.json || [ $? = 1 ]
