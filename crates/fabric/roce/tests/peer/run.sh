#!/bin/bash
# Tests this crate against the kernel's RDMA. A guest kernel with Soft-RoCE is at the other end of a tap device. The
# script runs in its own network namespace.
#
# Usage: UML_KERNEL=KERNEL unshare -rn run.sh RXE_FOLDER STENTOR REAL_PEER_TEST
#   UML_KERNEL      the guest kernel
#   RXE_FOLDER      has uml-run: xtask/guest
#   STENTOR         the command
#   REAL_PEER_TEST  the compiled tests/real_peer.rs
set -eu
rxe=$1 stentor=$2 real_peer=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/stentor-peer.XXXXXX")
guest=
finish() {
	status=$?
	[ -z "$guest" ] || kill "$guest" 2>/dev/null || true
	if [ $status -ne 0 ]; then
		echo "--- log of the guest:"; cat "$work/guest.log" 2>/dev/null || echo "(nothing)"
		for log in "$work"/host-*.log; do echo "--- $log"; cat "$log"; done
	fi
	rm -rf "$work"
	exit $status
}
trap finish EXIT
gcc -O1 -Wall -o "$work/verbs" "$here/verbs.c" -libverbs
ip link set lo up
ip tuntap add tap0 mode tap
ip addr add 10.77.0.1/24 dev tap0
ip link set tap0 up
{ echo "export WORK=$work WANT_BENCH=${WANT_BENCH:-0}"; cat "$here/guest.sh"; } >"$work/script.sh"
UML_TIMEOUT=900 "$rxe/uml-run" "$work/script.sh" vec0:transport=tap,ifname=tap0,depth=128,gro=0 >"$work/uml.log" 2>&1 &
guest=$!
play() { # PORT ARGUMENTS…
	local port=$1; shift
	echo "pingpong at port $port: $*"
	timeout 120 "$stentor" roce pingpong --bind 10.77.0.1 -n 1000 -m 1024 -p "$port" "$@" >"$work/host-$port.log" 2>&1
	grep -E "iters|packets were taken|injected" "$work/host-$port.log"
}
bad="--drop-chance 0.01 --duplicate-chance 0.01 --reorder-chance 0.01"
play 18515 --mode raw
play 18516 --mode raw 10.77.0.2
play 18517 --mode raw $bad --seed 3
play 18518 --mode raw $bad --seed 4 10.77.0.2
play 18519 --mode plain
STENTOR_ROCE_PEER=10.77.0.2:18600 STENTOR_ROCE_ADDRESS=10.77.0.1 "$real_peer" --ignored --nocapture >"$work/host-verbs.log" 2>&1
grep -E "^test result|^counters" "$work/host-verbs.log"
wait "$guest" && guest= || { echo "the guest failed"; exit 1; }
for one in client-18515 server-18516 client-18517 server-18518 client-18519; do
	[ "$(cat "$work/$one" 2>/dev/null)" = ok ] || { echo "$one has not reported success"; exit 1; }
done
echo "5 pingpongs of 1000 iterations and the verbs program: passed"
