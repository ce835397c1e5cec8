#!/usr/bin/env bash
# Messages through shared memory to three subscribers of iceoryx2. Prints a line of JSON for each shape.
# usage: unshare -rnm nodes.sh PROGRAM ipc 0 SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
program=$1 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
# It leaves files in both when a process is killed.
mkdir -p /tmp/iceoryx2
mount -t tmpfs tmpfs /tmp/iceoryx2
mount -t tmpfs tmpfs /dev/shm
extra=()
each_shape "$@"
