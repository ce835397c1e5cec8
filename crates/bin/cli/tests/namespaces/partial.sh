#!/bin/sh
# Runs three members over RoCEv2 in three network namespaces, not all of which reach each other. A client that reaches
# all of them multicasts all the time. Packets to a member are lost because its neighbour entry has an unused hardware
# address, so the sender gets no error.
#
#   unshare -rnm partial.sh STENTOR
#
# 1. Hub: the leader and another member do not reach each other, and both reach the third. With either leader, deliveries go on at
#    the leader and at the hub.
# 2. One way: packets from the leader to both others are lost, and packets to the leader arrive. Another member takes over, and
#    deliveries go on.
# After each case, the links are restored and all members catch up. In the end the histories are checked.
#
# Everything is removed with the namespaces.
set -eu
stentor=$1
. "$(dirname "$0")/hosts.sh"
four_hosts
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/cluster.key"
{
    printf 'cluster = "partial"\nfabric = "roce"\nkey = "file:cluster.key"\n'
    printf '[election]\nkind = "heartbeat"\ntimeout_min_ms = 300\ntimeout_max_ms = 600\n'
    printf '[limits]\nclients = 1\nwindow = 64\n[[group]]\nid = "g1"\nprocess = [\n'
    for n in 1 2 3; do printf ' { id = "g1.%s", address = "10.77.%s.1:7001" },\n' "$n" "$n"; done
    printf ']\n'
} >"$folder/cluster.toml"
for n in 1 2 3; do
    ip netns exec "s$n" "$stentor" node --config "$folder/cluster.toml" --id "g1.$n" --history "$folder/g1.$n.jsonl" \
        >"$folder/g1.$n.out" 2>"$folder/g1.$n.err" </dev/null &
    pids="$pids $!"
done
# Prints a line about every 10 ms, until the file `enough` exists.
feed() {
    i=0
    while [ ! -e "$folder/enough" ]; do
        i=$((i + 1))
        echo "line $i"
        sleep 0.01
    done
    echo "last"
}
mkfifo "$folder/lines"
feed >"$folder/lines" &
ip netns exec s4 "$stentor" cast --config "$folder/cluster.toml" --to g1 --bind 10.77.4.1 --timeout 60 \
    --history "$folder/c0.jsonl" <"$folder/lines" >"$folder/cast.out" 2>&1 &
cast=$!
pids="$pids $cast"

delivered() { tail -n 1 "$folder/g1.$1.out" | sed -n 's/.*"n":\([0-9]*\).*/\1/p' | grep . || echo 0; }
# Prints the member that leads in the latest epoch, according to the logs.
leader() {
    cat "$folder"/g1.*.err | sed -n 's/.*epoch \([0-9]*\): g1\.\([0-9]\) leads.*/\1 \2/p' | sort -n | tail -n 1 | cut -d ' ' -f 2
}
failed() {
    echo "$1"
    for n in 1 2 3; do echo "g1.$n delivered $(delivered "$n")"; done
    tail -n 5 "$folder"/*.err "$folder/cast.out"
    exit 1
}
# Arguments: WHAT SECONDS COMMAND... Repeats the command until it succeeds.
within() {
    what=$1 left=$(($2 * 10))
    shift 2
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || failed "$what"
        sleep 0.1
    done
}
beyond() { [ "$(delivered "$1")" -ge "$2" ]; }
others() { for n in 1 2 3; do [ "$n" = "$1" ] || echo "$n"; done; }
led_by_another() { [ "$(leader)" != "$1" ]; }
# Drops the packets from FROM to TO, or lets them arrive again.
cut_off() { ip -n "s$1" neigh replace "10.77.$2.1" lladdr 02:00:00:00:00:99 nud permanent dev eth; }
mend() { ip -n "s$1" neigh del "10.77.$2.1" dev eth; }
started=$(date +%s)
say() { echo "$(($(date +%s) - started)) s: $1; g1.$(leader) leads; delivered: $(delivered 1) $(delivered 2) $(delivered 3)"; }

for n in 1 2 3; do within "g1.$n does not begin to deliver" 20 beyond "$n" 50; done
say "all deliver"

first=$(leader)
set -- $(others "$first")
far=$1 hub=$2
cut_off "$first" "$far"
cut_off "$far" "$first"
# The pause is longer than the client's window takes to fill, and longer than a few timeouts.
sleep 3
from=$(delivered "$hub")
within "deliveries do not go on at the hub g1.$hub" 10 beyond "$hub" $((from + 100))
led=$(leader)
[ "$led" = "$first" ] || [ "$led" = "$hub" ] || failed "g1.$led leads, which does not reach g1.$first"
within "deliveries do not go on at the leader g1.$led" 5 beyond "$led" $((from + 100))
say "g1.$first and g1.$far reach g1.$hub alone"
mend "$first" "$far"
mend "$far" "$first"
within "g1.$far does not catch up" 30 beyond "$far" "$(delivered "$hub")"
say "the link is back"

first=$(leader)
for other in $(others "$first"); do cut_off "$first" "$other"; done
within "nobody else leads after nothing gets from g1.$first to the others" 10 led_by_another "$first"
for other in $(others "$first"); do
    within "deliveries do not go on at g1.$other" 10 beyond "$other" $(($(delivered "$other") + 100))
done
say "nothing gets from g1.$first to the others"
for other in $(others "$first"); do mend "$first" "$other"; done
within "g1.$first does not catch up" 30 beyond "$first" "$(delivered "$(leader)")"
say "the links are back"

touch "$folder/enough"
wait "$cast" || failed "the client did not end well"
lines=$(grep -c . "$folder/c0.jsonl" || true)
last=$(delivered "$(leader)")
for n in 1 2 3; do within "g1.$n does not deliver everything" 20 beyond "$n" "$last"; done
say "the client is done ($lines lines of its history)"
for pid in $pids; do [ "$pid" = "$cast" ] || kill -TERM "$pid"; done
for pid in $pids; do [ "$pid" = "$cast" ] || wait "$pid"; done
pids=
"$stentor" check --complete "$folder"/*.jsonl
