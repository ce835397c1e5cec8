# Three hosts: network namespaces h1, h2 and h3, which a bridge joins by veth pairs with MTU `$mtu`. Each host N has the addresses
# 10.9.9.N and 10.9.9.1N. To be read by a script that `unshare -rnm` runs, with bash. Gives a folder `$work`; what the script starts it
# adds to `started`, and everything is ended with it.
work=$(mktemp -d)
started=()
end() {
  kill "${started[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT
mount -t tmpfs tmpfs /run
mkdir -p /run/netns
ip link set lo up
ip link add bridge type bridge
for n in 1 2 3; do
  ip netns add "h$n"
  ip link add "v$n" mtu "$mtu" type veth peer name eth0 mtu "$mtu" netns "h$n"
  ip link set "v$n" master bridge up
  ip -n "h$n" link set lo up
  ip -n "h$n" link set eth0 up
  for last in "$n" "1$n"; do ip -n "h$n" addr add "10.9.9.$last/24" dev eth0; done
done
ip link set bridge mtu "$mtu" up
