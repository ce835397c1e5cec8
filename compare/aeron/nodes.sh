#!/usr/bin/env bash
# Sends messages through shared memory to three subscriptions of Aeron, or in round trips between two processes. Prints
# a line of JSON for each shape.
# usage: unshare -rnm nodes.sh PROGRAM ipc|pair 0 SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
program=$1 how=$2 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
mount -t tmpfs tmpfs /dev/shm
start 1 "$program-driver" /dev/shm/aeron >"$work/driver.log" 2>&1
for _ in $(seq 100); do
  [[ -e /dev/shm/aeron/cnc.dat ]] && break
  sleep 0.05
done
extra=(--driver /dev/shm/aeron)
if [[ $how == pair ]]; then each_pair "$@"; else each_shape "$@"; fi
