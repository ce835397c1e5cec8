#!/bin/bash
# Inside the guest: Soft-RoCE on an interface that leads nowhere, so that queue pairs talk to each other in one process; the
# tests of rxe.rs, and what the doctor says. WORK, TEST and STENTOR are set by cargo xtask.
set -eu
cd "$WORK"
exec >guest.log 2>&1
ip link add d0 type dummy
ip addr add 10.0.0.1/24 dev d0
ip link set d0 up
rdma link add rxe0 type rxe netdev d0
"$STENTOR" doctor --json >doctor.json
"$TEST" --ignored --nocapture --test-threads 1
