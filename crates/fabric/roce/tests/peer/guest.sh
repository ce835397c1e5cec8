#!/bin/bash
# Runs in the guest: sets up Soft-RoCE on the network card vec0, and runs rdma-core's example programs on it. run.sh
# sets WORK.
set -u
cd "$WORK"
exec >guest.log 2>&1
ip link set lo up
ip addr add 10.77.0.2/24 dev vec0
ip link set vec0 up
rdma link add rxe0 type rxe netdev vec0 || exit 1
pingpong="ibv_rc_pingpong -e -d rxe0 -g 1 -n ${ITERATIONS:-1000} -m 1024"
# The server on the other side may start later.
client() {
	for _ in $(seq 150); do
		$pingpong -p "$1" 10.77.0.1 >"client-$1.log" 2>&1 && { echo ok >"client-$1"; return 0; }
		grep -q "Couldn't connect" "client-$1.log" || break
		sleep 0.2
	done
	echo "client at port $1 failed"; cat "client-$1.log"; return 1
}
server() {
	timeout 100 $pingpong -p "$1" >"server-$1.log" 2>&1 && { echo ok >"server-$1"; return 0; }
	echo "server at port $1 failed"; cat "server-$1.log"; return 1
}
failed=0
client 18515 || failed=1
server 18516 || failed=1
client 18517 || failed=1
server 18518 || failed=1
client 18519 || failed=1
timeout 60 ./verbs rxe0 1 18600 || { echo "verbs failed"; failed=1; }
[ "$WANT_BENCH" = 1 ] && server 18520
exit $failed
