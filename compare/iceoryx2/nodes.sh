#!/usr/bin/env bash
# Sends messages through shared memory to three subscribers of iceoryx2, or in round trips between two processes. Prints
# a line of JSON for each shape.
# usage: unshare -rnm nodes.sh PROGRAM ipc|pair 0 SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
program=$1 how=$2 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
# iceoryx2 leaves files in both folders when a process is killed.
mkdir -p /tmp/iceoryx2
mount -t tmpfs tmpfs /tmp/iceoryx2
mount -t tmpfs tmpfs /dev/shm
extra=()
if [[ $how == pair ]]; then each_pair "$@"; else each_shape "$@"; fi
