#!/bin/bash
# Runs inside the guest: creates Soft-RoCE at one end of a cable, and a network namespace for user-space processes at
# the other, because Soft-RoCE occupies UDP port 4791 of its own namespace. `cargo xtask` sets WORK and TEST.
set -eu
cd "$WORK"
exec >interop.log 2>&1
ip link set lo up
ip netns add far
ip link add d0 type veth peer name d1 netns far
ip addr add 10.0.0.1/24 dev d0
ip link set d0 up
for last in 65 66 67; do ip -n far addr add "10.0.0.$last/24" dev d1; done
ip -n far link set lo up
ip -n far link set d1 up
rdma link add rxe0 type rxe netdev d0
"$TEST" --ignored --nocapture --test-threads 1
