#!/bin/bash
# Inside a guest: the kernel's Soft-RoCE on one end of a pair of interfaces, and on the other one, in a network namespace, the
# software switch on raw sockets. First the contract's cases of sets on verbs; then a cluster whose client writes by its set.
# WORK, HERE, STENTOR, TEST and LINES are set by cargo xtask.
set -eu
cd "$WORK"
exec >sets.log 2>&1
at_switch="ip netns exec switch"
now() { date +%s%N; }
since() { echo "$((($(now) - $1) / 1000000)) ms"; }
ip link set lo up
ip netns add switch
ip link add v0 type veth peer name v1
ip link set v1 netns switch
ip addr add 10.0.0.1/24 dev v0
ip link set v0 up
$at_switch ip link set lo up
$at_switch ip link set v1 up
for address in 10.0.0.101 10.0.0.102 10.99.0.1 10.99.0.2; do $at_switch ip addr add $address/24 dev v1; done
rdma link add rxe0 type rxe netdev v0
mkdir -m 700 /run/stentor
printf '%s' "$(printf '11%.0s' $(seq 32))" >cluster.key
# Starts a switch; it says on the way out what became of packets.
switch() { # NAME CLUSTER FORWARD BACKWARD CONTROL
    cat >"$1.toml" <<END
mode = "raw"
cluster = "$2"
forward = "$3"
backward = "$4"
control = "$5"
key = "file:cluster.key"
END
    $at_switch "$STENTOR" switch --config "$1.toml" --directory /run/stentor --wait block >"$1.out" 2>"$1.err" &
    switches="$switches $!"
}
switches=
switch near test 10.0.0.101 10.0.0.102 10.0.0.101:7300
switch afar test 10.99.0.1 10.99.0.2 10.0.0.101:7301
sleep 0.5
cat near.err afar.err
STENTOR_SWITCH=10.0.0.101:7300 STENTOR_SWITCH_AFAR=10.0.0.101:7301 "$TEST" --ignored --nocapture --test-threads 1
