#!/bin/sh
# Runs a cluster over RoCEv2 whose processes are in three network namespaces that a bridge connects: two groups of
# three, one member of each in every namespace, and a client. Then the first group broadcasts. All histories are
# checked.
#
#   unshare -rnm run.sh STENTOR LINES [arguments of every process]
#
# Everything is removed with the namespaces.
set -eu
stentor=$1 lines=$2
shift 2
. "$(dirname "$0")/hosts.sh"
. "$(dirname "$0")/../has_all.sh"
ip link add bridge type bridge
ip link set bridge up
for n in 1 2 3; do
    ip netns add "s$n"
    ip link add "v$n" type veth peer name eth netns "s$n"
    ip link set "v$n" master bridge up
    ip -n "s$n" link set lo up
    ip -n "s$n" link set eth up
    # The first addresses are for a member of each group, the last is for a client.
    for last in 1 2 9; do ip -n "s$n" address add "10.77.$n.$last/16" dev eth; done
done
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/cluster.key"
{
    printf 'cluster = "spaces"\nfabric = "roce"\nkey = "file:cluster.key"\n[election]\nkind = "heartbeat"\n'
    printf '[limits]\nclients = 1\n'
    for group in 1 2; do
        printf '[[group]]\nid = "g%s"\nprocess = [\n' "$group"
        for n in 1 2 3; do printf ' { id = "g%s.%s", address = "10.77.%s.%s:7001" },\n' "$group" "$n" "$n" "$group"; done
        printf ']\n'
    done
    printf '[neb]\ngroup = "g1"\nmode = "all"\n'
} >"$folder/cluster.toml"
for group in 1 2; do
    for n in 1 2 3; do
        id=g$group.$n
        ip netns exec "s$n" "$stentor" node --config "$folder/cluster.toml" --id "$id" --history "$folder/$id.jsonl" \
            --operations "$@" >"$folder/$id.out" 2>"$folder/$id.err" </dev/null &
        pids="$pids $!"
    done
done
awk -v n="$lines" 'BEGIN { for (i = 1; i <= n; i++) print "line", i }' >"$folder/input"
if ! ip netns exec s1 "$stentor" cast --config "$folder/cluster.toml" --to g1,g2 --bind 10.77.1.9 --timeout 60 \
    --history "$folder/c0.jsonl" --operations "$@" <"$folder/input"; then
    tail -n 3 "$folder"/*.err
    exit 1
fi
# A member outside the majority also delivers, or restores the state: clients may have reused message slots that it did
# not receive while it was disconnected.
for id in g1.1 g1.2 g1.3 g2.1 g2.2 g2.3; do
    tries=0
    while ! has_all "$folder/$id.out" "$lines"; do
        tries=$((tries + 1))
        if [ $tries -gt 600 ]; then
            echo "$id delivered $(wc -l <"$folder/$id.out") of $lines; the last: $(tail -n 1 "$folder/$id.out")"
            tail -n 3 "$folder"/*.err
            exit 1
        fi
        sleep 0.1
    done
done
for pid in $pids; do kill -TERM "$pid"; done
for pid in $pids; do wait "$pid"; done
pids=
"$stentor" check --complete "$folder"/*.jsonl
mkdir "$folder/neb"
for n in 1 2 3; do
    awk -v n="$n" 'BEGIN { for (i = 1; i <= 200; i++) print "line", i, "of", n }' >"$folder/neb/$n.in"
    ip netns exec "s$n" "$stentor" neb run --config "$folder/cluster.toml" --id "g1.$n" \
        --history "$folder/neb/$n.jsonl" "$@" >"$folder/neb/$n.out" 2>"$folder/neb/$n.err" <"$folder/neb/$n.in" &
    pids="$pids $!"
done
for n in 1 2 3; do
    tries=0
    while [ "$(grep -c '"deliver"' "$folder/neb/$n.out")" -lt 600 ]; do
        tries=$((tries + 1))
        if [ $tries -gt 600 ]; then
            echo "g1.$n delivered $(grep -c '"deliver"' "$folder/neb/$n.out") of 600"
            tail -n 3 "$folder"/neb/*.err
            exit 1
        fi
        sleep 0.1
    done
done
for pid in $pids; do kill -TERM "$pid"; done
for pid in $pids; do wait "$pid"; done
pids=
"$stentor" check --complete "$folder"/neb/*.jsonl
