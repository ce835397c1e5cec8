#!/bin/bash
# Runs in the guest. Sets up Soft-RoCE at both ends of a veth pair, and in a namespace an equal network without
# Soft-RoCE, where this crate uses port 4791. Runs examples/beside_kernel on both in turns. cargo xtask sets WORK (with
# shim.so), HERE (this folder), PROGRAM and ROUNDS.
set -eu
cd "$WORK"
exec >beside.log 2>&1
. "$HERE/veth.sh"
network 10.77.0 9000
rdma link add rxe1 type rxe netdev v1
rdma link add rxe2 type rxe netdev v2
ip netns add ours
export -f network
ip netns exec ours bash -euc "network 10.77.0 9000"
"$PROGRAM" measure ./shim.so "$ROUNDS" ip netns exec ours
for n in 1 2; do
	echo "v$n: $(cat /sys/class/net/v$n/statistics/tx_packets) packets of the kernel were sent here"
done
