#!/bin/bash
# Runs inside a guest: the kernel's Soft-RoCE on one end of a pair of interfaces, and the software switch on raw sockets
# on the other end, in a network namespace. First come the contract's cases of fan-out sets on verbs. Then follow a
# cluster whose client writes by its set while the switch is stopped and started, a broadcast of its processes, and a
# cluster whose switch does not run. `cargo xtask` sets WORK, HERE, STENTOR, TEST and LINES.
set -eu
cd "$WORK"
exec >sets.log 2>&1
at_switch="ip netns exec switch"
now() { date +%s%N; }
since() { echo "$((($(now) - $1) / 1000000)) ms"; }
ip link set lo up
ip netns add switch
ip link add v0 type veth peer name v1
ip link set v1 netns switch
ip addr add 10.0.0.1/24 dev v0
ip link set v0 up
$at_switch ip link set lo up
$at_switch ip link set v1 up
for last in 101 102; do $at_switch ip addr add "10.0.0.$last/24" dev v1; done
# Two more addresses, for which the namespace answers no ARP requests.
$at_switch sh -c 'echo 1 >/proc/sys/net/ipv4/conf/v1/arp_ignore'
for last in 1 2; do $at_switch ip addr add "10.99.0.$last/32" dev lo; done
rdma link add rxe0 type rxe netdev v0
mkdir -m 700 /run/stentor
# The key of the tests.
printf 'a key of this test' >cluster.key
# Starts a switch. At its end it prints its packet counters.
switch() { # NAME CLUSTER FORWARD BACKWARD CONTROL OPTIONS...
    cat >"$1.toml" <<END
mode = "raw"
cluster = "$2"
forward = "$3"
backward = "$4"
control = "$5"
key = "file:cluster.key"
END
    local name=$1
    shift 5
    $at_switch "$STENTOR" switch --config "$name.toml" --directory /run/stentor --wait block "$@" >"$name.out" 2>"$name.err" &
}
switch near test 10.0.0.101 10.0.0.102 10.0.0.101:7300
near=$!
switch afar test 10.99.0.1 10.99.0.2 10.0.0.101:7301
afar=$!
until grep -qs "hosts ask" near.err && grep -qs "hosts ask" afar.err; do sleep 0.1; done
STENTOR_SWITCH=10.0.0.101:7300 STENTOR_SWITCH_AFAR=10.0.0.101:7301 "$TEST" --ignored --nocapture --test-threads 1

# Starts a cluster with these groups of three. Sets the destinations of its client and lists its members.
cluster() { # NAME CONTROL GROUPS
    local group n
    mkdir -p "$1"
    to= ids= members=
    for group in $3; do
        to="$to${to:+,}g$group"
        for n in 1 2 3; do ids="$ids g$group.$n"; done
    done
    cp cluster.key "$1"
    {
        printf 'cluster = "sets"\nfabric = "verbs"\nkey = "file:cluster.key"\n[election]\nkind = "heartbeat"\n[limits]\nclients = 1\n'
        printf '[switch]\ncontrol = "%s"\n[neb]\ngroup = "g1"\nmode = "all"\n' "$2"
        for group in $3; do
            printf '[[group]]\nid = "g%s"\nprocess = [\n' "$group"
            for n in 1 2 3; do printf ' { id = "g%s.%s", address = "10.0.0.1:70%s%s" },\n' $group $n $group $n; done
            printf ']\n'
        done
    } >"$1/cluster.toml"
    for id in $ids; do
        "$STENTOR" node --config "$1/cluster.toml" --id $id --history "$1/$id.jsonl" --directory /run/stentor --wait block \
            >"$1/$id.out" 2>"$1/$id.err" </dev/null &
        members="$members $!"
    done
}
# Sends the lines slowly. Before the first third and before the last third the client waits for a file.
lines() { # NAME
    await "$1/begin"
    for i in $(seq "$LINES"); do
        echo "line $i"
        [ "$i" != $((LINES / 3)) ] || touch "$1/third"
        [ "$i" != $((LINES * 2 / 3)) ] || { touch "$1/thirds" && await "$1/back"; }
        busybox usleep 10000
    done
}
cast() { # NAME
    lines "$1" | "$STENTOR" cast --config "$1/cluster.toml" --to "$to" --bind 10.0.0.1 --timeout 60 --history "$1/c0.jsonl" \
        --directory /run/stentor --wait block 2>"$1/c0.err"
}
await() { # FILE
    local tries=0
    until [ -e "$1" ]; do
        tries=$((tries + 1))
        [ $tries -le 900 ] || { echo "after 90 s still not: $1"; tail -n 5 "${1%/*}"/*.err; return 1; }
        sleep 0.1
    done
}
# Waits until all members have delivered all lines, and checks the histories.
finish() { # NAME
    local id tries=0
    for id in $ids; do
        until tail -n 1 "$1/$id.out" | grep -q "\"payload\":\"line $LINES\""; do
            tries=$((tries + 1))
            [ $tries -le 600 ] || { echo "$id has delivered $(wc -l <"$1/$id.out") of $LINES"; tail "$1/$id.err"; return 1; }
            sleep 0.1
        done
    done
    kill $members
    wait $members
    "$STENTOR" check --complete "$1"/*.jsonl
}
# Prints the number of copies that the switch reported at its end.
copied() { sed -n 's/^passes:.*[ ,]copied \([0-9]*\).*/\1/p' "$1.out"; }
made() { # NAME LEAST
    local copies
    copies=$(copied "$1")
    echo "the $1 switch made ${copies:-no} copies; $(grep injected "$1.out")"
    [ "${copies:-0}" -ge "$2" ] || { echo "that is less than $2"; cat "$1.out"; return 1; }
}
stop() { # PID
    kill -TERM "$1"
    wait "$1"
}

# Waits until a process has reported the switch TIMES times. The other processes follow a little later.
heard() { # NAME.ERR TIMES
    local tries=0
    until [ -e "$1" ] && [ "$(grep -c "the switch at .* is there" "$1" || true)" -ge "$2" ]; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || { echo "$1 does not say that the switch is there"; cat "$1"; tail -n 20 ./*.err; return 1; }
        sleep 0.1
    done
    sleep 1
}

# The switch is stopped in the middle of the lines and started again, and then loses packets.
began=$(now)
stop $near
stop $afar
switch first sets 10.0.0.101 10.0.0.102 10.0.0.101:7300
first=$!
until grep -qs "hosts ask" first.err; do sleep 0.1; done
cluster with 10.0.0.101:7300 "1 2"
cast with &
caster=$!
heard with/c0.err 1
echo "everybody is there after $(since "$began")"
touch with/begin
await with/third
stop $first
await with/thirds
switch second sets 10.0.0.101 10.0.0.102 10.0.0.101:7300 --drop-chance 0.02 --seed 3
second=$!
heard with/c0.err 2
touch with/back
wait $caster
finish with
stop $second
cat with/c0.err
# A third of the lines goes to six members each.
for part in first second; do made $part $((LINES * 2)); done
echo "with a switch that is stopped and started: took $(since "$began")"

# All members of a group broadcast.
began=$(now)
switch third sets 10.0.0.101 10.0.0.102 10.0.0.101:7300
third=$!
mkdir neb
ids= members=
for n in 1 2 3; do
    { await neb/begin && for i in $(seq "$LINES"); do echo "line $i of $n"; done; } |
        "$STENTOR" neb run --config with/cluster.toml --id g1.$n --history neb/$n.jsonl --directory /run/stentor \
            >neb/$n.out 2>neb/$n.err &
    members="$members $!"
done
for n in 1 2 3; do heard neb/$n.err 1; done
touch neb/begin
for n in 1 2 3; do
    tries=0
    until [ "$(grep -c '"deliver"' neb/$n.out)" -ge $((3 * LINES)) ]; do
        tries=$((tries + 1))
        [ $tries -le 600 ] || { echo "g1.$n has delivered $(grep -c '"deliver"' neb/$n.out) of $((3 * LINES))"; cat neb/*.err; exit 1; }
        sleep 0.1
    done
done
kill $members
wait $members
stop $third
"$STENTOR" check --complete neb/*.jsonl
# Each line goes to two other members.
made third $((LINES * 3))
echo "a broadcast of three: took $(since "$began")"

# No switch answers at this address.
began=$(now)
mkdir -p without
cluster without 10.0.0.101:7399 1
touch without/begin without/back
cast without
finish without
grep "cannot be used" without/c0.err
echo "without a switch: took $(since "$began")"
