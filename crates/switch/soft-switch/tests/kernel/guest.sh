#!/bin/bash
# Runs inside the guest: the kernel's Soft-RoCE on the network card vec0, and hosts of a set on it. run.sh sets WORK and
# COUNT.
set -u
cd "$WORK"
exec >guest.log 2>&1
ip link set lo up
ip addr add 10.77.0.2/24 dev vec0
ip link set vec0 up
rdma link add rxe0 type rxe netdev vec0 || exit 1
timeout 200 ./members rxe0 1 18700 "$COUNT" || { echo "members failed with $?"; exit 1; }
echo "members are done"
