#!/bin/bash
# Tests the software switch between a host in user space and eight hosts of a real RDMA stack: queue pairs of a guest
# kernel's Soft-RoCE at the other end of a tap device, in a separate network namespace.
#
# Usage: UML_KERNEL=KERNEL unshare -rn run.sh RXE_FOLDER KERNEL_TEST
#   UML_KERNEL   the guest kernel
#   RXE_FOLDER   contains uml-run: xtask/guest
#   KERNEL_TEST  the compiled tests/kernel.rs
set -eu
rxe=$1 test=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/stentor-switch.XXXXXX")
guest=
finish() {
	status=$?
	[ -z "$guest" ] || kill "$guest" 2>/dev/null || true
	if [ $status -ne 0 ]; then
		echo "--- what the guest said:"; cat "$work/guest.log" 2>/dev/null || echo "(nothing)"
		echo "--- what the test said:"; cat "$work/test.log" 2>/dev/null || echo "(nothing)"
		[ -z "${KEEP:-}" ] || cp -r "$work" "$KEEP"
	fi
	rm -rf "$work"
	exit $status
}
trap finish EXIT
gcc -O1 -Wall -Werror -o "$work/members" "$here/members.c" -libverbs
ip link set lo up
ip tuntap add tap0 mode tap
# The two addresses of the switch, and that of the host in user space.
for last in 1 3 4; do ip addr add "10.77.0.$last/24" dev tap0; done
ip link set tap0 up
{ echo "export WORK=$work COUNT=8"; cat "$here/guest.sh"; } >"$work/script.sh"
UML_TIMEOUT=900 "$rxe/uml-run" "$work/script.sh" vec0:transport=tap,ifname=tap0,depth=128,gro=0 >"$work/uml.log" 2>&1 &
guest=$!
STENTOR_SWITCH_PEER=10.77.0.2:18700 STENTOR_SWITCH_COUNT=8 STENTOR_SWITCH_WORK="$work" \
	"$test" --ignored --nocapture >"$work/test.log" 2>&1
grep -E "^test result|^switch: " "$work/test.log"
wait "$guest" && guest= || { echo "the guest failed"; exit 1; }
