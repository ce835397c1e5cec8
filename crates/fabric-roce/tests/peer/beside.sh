#!/bin/bash
# Inside the guest: Soft-RoCE at both ends of a veth pair, and the same network without it in a namespace, where port 4791
# is ours; examples/beside_kernel on both, in turns. WORK (with shim.so), PROGRAM and ROUNDS are set by cargo xtask.
set -eu
cd "$WORK"
exec >beside.log 2>&1
# Both ends are in one namespace (Soft-RoCE works in the first one only), so what goes from one to the other is told to take
# the wire, not the short way through the host.
network() {
	ip link set lo up
	ip link add v1 mtu 9000 type veth peer name v2 mtu 9000
	for n in 1 2; do
		ip addr add "10.77.0.$n/24" dev "v$n"
		ip link set "v$n" up
		echo 1 >"/proc/sys/net/ipv4/conf/v$n/accept_local"
		echo 1 >"/proc/sys/net/ipv4/conf/v$n/arp_ignore"
		echo 0 >"/proc/sys/net/ipv4/conf/v$n/rp_filter"
	done
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	for n in 1 2; do
		other=$((3 - n))
		ip route add "10.77.0.$other/32" dev "v$n" src "10.77.0.$n" table "10$n"
		ip rule add pref 10 iif lo to "10.77.0.$other" lookup "10$n"
	done
	ip rule add pref 20 lookup local
	ip rule del pref 0
}
network
rdma link add rxe1 type rxe netdev v1
rdma link add rxe2 type rxe netdev v2
ip netns add ours
export -f network
ip netns exec ours bash -euc network
"$PROGRAM" measure ./shim.so "$ROUNDS" ip netns exec ours
for n in 1 2; do
	echo "v$n: $(cat /sys/class/net/v$n/statistics/tx_packets) packets of the kernel's went this way"
done
