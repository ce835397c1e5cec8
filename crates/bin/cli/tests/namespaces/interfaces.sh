#!/bin/sh
# Runs three members over RoCEv2 on hosts with two network interfaces each. The name of every host has two addresses,
# one in each network, and the hosts do not agree on their order. A process listens at one of the addresses, and the
# others have to find it.
#
#   unshare -rnm interfaces.sh STENTOR
#
# Everything is removed with the namespaces.
set -eu
stentor=$1
. "$(dirname "$0")/hosts.sh"
for net in 77 78; do
    ip link add "bridge$net" type bridge
    ip link set "bridge$net" up
done
for n in 1 2 3; do
    ip netns add "s$n"
    ip -n "s$n" link set lo up
    for net in 77 78; do
        ip link add "v$n-$net" type veth peer name "eth$net" netns "s$n"
        ip link set "v$n-$net" master "bridge$net" up
        ip -n "s$n" link set "eth$net" up
        # The first address is for the member, the second for a client.
        for last in 1 9; do ip -n "s$n" address add "10.$net.$n.$last/16" dev "eth$net"; done
    done
done
# The second host resolves names to the second network first.
for n in 1 2 3; do
    nets="77 78"
    [ $n != 2 ] || nets="78 77"
    {
        echo "127.0.0.1 localhost"
        for net in $nets; do
            for other in 1 2 3; do echo "10.$net.$other.1 node-$other"; done
        done
    } >"$folder/hosts.$n"
done
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/cluster.key"
{
    printf 'cluster = "interfaces"\nfabric = "roce"\nkey = "file:cluster.key"\n'
    printf '[limits]\nclients = 1\nwindow = 64\n[[group]]\nid = "g1"\nprocess = [\n'
    for n in 1 2 3; do printf ' { id = "g1.%s", address = "node-%s:7001" },\n' "$n" "$n"; done
    printf ']\n'
} >"$folder/cluster.toml"

# Executes a command on a host, with the names that this host resolves.
on() { # NUMBER COMMAND...
    host=$1
    shift
    exec ip netns exec "s$host" unshare -m sh -ec 'mount --bind "$0" /etc/hosts && exec "$@"' "$folder/hosts.$host" "$@"
}
# Precondition: the second host resolves a name to another first address.
first() { on "$1" getent ahosts node-1 | awk 'NR == 1 { print $1 }'; }
[ "$(first 1)" != "$(first 2)" ] || failed "both hosts take $(first 1) for the first address of node-1"

for n in 1 2 3; do
    on "$n" "$stentor" node --config "$folder/cluster.toml" --directory "$folder/$n" --id "g1.$n" --history "$folder/g1.$n.jsonl" \
        >"$folder/g1.$n.out" 2>"$folder/g1.$n.err" </dev/null &
    pids="$pids $!"
done
for n in 1 2 3; do connected "$folder/g1.$n.err"; done
seq 100 >"$folder/input"
(on 3 "$stentor" cast --config "$folder/cluster.toml" --to g1 --bind 10.77.3.9 --timeout 30 --history "$folder/c0.jsonl") \
    <"$folder/input" >"$folder/cast.out" 2>"$folder/cast.err" || failed "the client finds nobody"
# Each host must be able to ask the other two members at their addresses.
for n in 1 2 3; do
    (on "$n" "$stentor" leader show --config "$folder/cluster.toml" --directory "$folder/$n") >"$folder/shown" || {
        cat "$folder/shown"
        failed "from host $n the group does not work"
    }
    grep -q "3 of its 3 members" "$folder/shown" || {
        cat "$folder/shown"
        failed "from host $n not all members are found"
    }
done
for pid in $pids; do kill -TERM "$pid"; done
for pid in $pids; do wait "$pid"; done
pids=
"$stentor" check --complete "$folder"/*.jsonl
