#!/bin/bash
# Inside the guest: golden captures of the kernel's Soft-RoCE, which is at both ends of a veth pair. WORK (with the program
# golden) is set by cargo xtask.
set -eu
cd "$WORK"
exec >golden.log 2>&1
# Both ends are in one namespace (Soft-RoCE works in the first one only), so what goes from one to the other is told to take
# the wire, not the short way through the host.
ip link set lo up
ip link add v1 address 02:00:00:00:00:01 type veth peer name v2 address 02:00:00:00:00:02
for n in 1 2; do
	ip addr add "10.9.0.$n/24" dev "v$n"
	ip link set "v$n" up
	echo 1 >"/proc/sys/net/ipv4/conf/v$n/accept_local"
	echo 1 >"/proc/sys/net/ipv4/conf/v$n/arp_ignore"
	echo 0 >"/proc/sys/net/ipv4/conf/v$n/rp_filter"
done
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
for n in 1 2; do
	other=$((3 - n))
	ip route add "10.9.0.$other/32" dev "v$n" src "10.9.0.$n" table "10$n"
	ip rule add pref 10 iif lo to "10.9.0.$other" lookup "10$n"
done
ip rule add pref 20 lookup local
ip rule del pref 0
rdma link add rxe1 type rxe netdev v1
rdma link add rxe2 type rxe netdev v2
./golden rxe1 rxe2 v1 atomic rxe_atomic.pcap
./golden rxe1 rxe2 v1 sendimm rxe_sendimm.pcap
./golden rxe1 rxe2 v1 uc rxe_uc.pcap
uname -r
