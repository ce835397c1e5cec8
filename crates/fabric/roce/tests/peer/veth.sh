# A function for guests: `network NET MTU` makes a veth pair v1 and v2 with the addresses NET.1 and NET.2. Both ends are
# in one namespace, because Soft-RoCE works only in the first one. Routing rules therefore send packets between them
# over the veth pair instead of directly through the host.
network() {
	ip link set lo up
	ip link add v1 address 02:00:00:00:00:01 mtu "$2" type veth peer name v2 address 02:00:00:00:00:02 mtu "$2"
	for n in 1 2; do
		ip addr add "$1.$n/24" dev "v$n"
		ip link set "v$n" up
		echo 1 >"/proc/sys/net/ipv4/conf/v$n/accept_local"
		echo 1 >"/proc/sys/net/ipv4/conf/v$n/arp_ignore"
		echo 0 >"/proc/sys/net/ipv4/conf/v$n/rp_filter"
	done
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	for n in 1 2; do
		other=$((3 - n))
		ip route add "$1.$other/32" dev "v$n" src "$1.$n" table "10$n"
		ip rule add pref 10 iif lo to "$1.$other" lookup "10$n"
	done
	ip rule add pref 20 lookup local
	ip rule del pref 0
}
