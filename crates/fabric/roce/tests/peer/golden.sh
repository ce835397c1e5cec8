#!/bin/bash
# Runs in the guest: makes golden captures of the kernel's Soft-RoCE at both ends of a veth pair. cargo xtask sets WORK
# (with the program golden) and HERE (this folder).
set -eu
cd "$WORK"
exec >golden.log 2>&1
. "$HERE/veth.sh"
network 10.9.0 1500
rdma link add rxe1 type rxe netdev v1
rdma link add rxe2 type rxe netdev v2
./golden rxe1 rxe2 v1 atomic rxe_atomic.pcap
./golden rxe1 rxe2 v1 sendimm rxe_sendimm.pcap
./golden rxe1 rxe2 v1 uc rxe_uc.pcap
uname -r
