#!/bin/sh
# Runs three members and a client over RoCEv2 on four hosts. The links have an MTU of 576, or one of 9000
# that is later lowered to 1000. Either the hosts know the MTU, or only the bridge between them and its ports do, so
# that long packets are dropped silently. A message longer than any packet must arrive each time, and the dropped
# packets must be reported.
#
#   unshare -rnm mtu.sh STENTOR
#
# Everything is removed with the namespaces.
set -eu
stentor=$1
. "$(dirname "$0")/hosts.sh"
four_hosts
# A bridge forwards a run of packets as a whole, whatever its MTU is. A real switch handles single packets, and so do
# these links.
for n in 1 2 3 4; do ip -n "s$n" link set eth gso_max_segs 1; done
# Sets the MTU of the links between the hosts, and of their ends if a second argument is given.
links() { # MTU [ends]
    for n in 1 2 3 4; do
        [ -z "${2:-}" ] || ip -n "s$n" link set eth mtu "$1"
        ip link set "v$n" mtu "$1"
    done
    ip link set bridge mtu "$1"
}
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/cluster.key"
{
    printf 'cluster = "mtu"\nfabric = "roce"\nkey = "file:cluster.key"\n[limits]\nclients = 1\n[[group]]\nid = "g1"\nprocess = [\n'
    for n in 1 2 3; do printf ' { id = "g1.%s", address = "10.77.%s.1:7001" },\n' "$n" "$n"; done
    printf ']\n'
} >"$folder/cluster.toml"
# Prints a hundred short messages and a long one that is longer than any packet. It differs each time, because memory
# still holds the bytes of earlier messages.
input() {
    seq 100
    head -c 45000 /dev/urandom | base64 -w 0
    echo
}

begin() { # NAME
    for n in 1 2 3; do
        ip netns exec "s$n" "$stentor" node --config "$folder/cluster.toml" --directory "$folder/$1-$n" --id "g1.$n" \
            >/dev/null 2>"$folder/$1-$n.err" </dev/null &
        pids="$pids $!"
    done
    for n in 1 2 3; do connected "$folder/$1-$n.err"; done
}
multicast() { # NAME WHEN
    input >"$folder/input"
    ip netns exec s4 "$stentor" cast --config "$folder/cluster.toml" --directory "$folder/$1-4" --to g1 --bind 10.77.4.1 \
        --timeout 30 <"$folder/input" >"$folder/$1-$2.out" 2>"$folder/$1-$2.err" || failed "$1, $2: not all is delivered"
}
end() {
    for pid in $pids; do kill -TERM "$pid"; done
    for pid in $pids; do wait "$pid"; done
    pids=
}

links 576 ends
begin small
multicast small before
end
for ends in ends ""; do
    name=lowered${ends:+-ends}
    links 9000 ends
    begin "$name"
    multicast "$name" before
    links 1000 $ends
    multicast "$name" after
    end
done
grep -q "never answered, although the peer reconnected" "$folder/lowered-after.err" || failed "what vanishes is not named"
! grep -q "never answered" "$folder/small-before.err" || failed "nothing vanishes where the ends know the MTU"
