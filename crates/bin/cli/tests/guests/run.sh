#!/bin/bash
# Runs a cluster in two or three guests that a bridge connects: two groups of three and a client. Each guest is a Linux
# kernel with Soft-RoCE. In the middle of the messages the link of one guest is cut and later restored, or the guest
# loses its power and is later started again. All members must deliver all messages, restarted ones those after their
# return. The histories are checked.
#
#   UML_KERNEL=KERNEL unshare -rnpf --mount-proc --kill-child run.sh RXE_FOLDER STENTOR FABRIC GUESTS CUT LINES cut|off [switch]
#
#   UML_KERNEL  the guest kernel
#   RXE_FOLDER  has uml-run: xtask/guest
#   STENTOR     the command
#   FABRIC      verbs or roce
#   GUESTS      2 or 3: members 1 to 3 of each group run in guests 1, 1, 2 or 1, 2, 3; the client runs in guest 1 or 2
#   CUT         the guest whose link is cut, or whose power is off; in that case not the guest of the client
#   LINES       number of messages
#   switch      a software switch on raw sockets, on the other side of the bridge, copies the writes of the client
#
# The network and the processes end with the namespaces.
set -eu
rxe=$1 stentor=$2 fabric=$3 guests=$4 cut=$5 lines=$6 how=$7 switch=${8:-}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../has_all.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/stentor-guests.XXXXXX")
declare -A guest=()
finish() {
    status=$?
    if [ $status -ne 0 ]; then
        for log in "$work"/*.log "$work"/*.err; do echo "--- ${log##*/}"; tail -n 15 "$log"; done
        [ -z "${KEEP:-}" ] || cp -r "$work" "$KEEP"
    fi
    rm -rf "$work"
    exit $status
}
trap finish EXIT
trap 'exit 1' INT TERM HUP
now() { date +%s%N; }
since() { echo "$((($(now) - $1) / 1000000)) ms"; }
# Waits for a file.
await() { # FILE SECONDS WHAT
    local tries=0
    while [ ! -e "$work/$1" ]; do
        [ ! -e "$work/failed" ] || { echo "a guest gave up: $3"; exit 1; }
        tries=$((tries + 1))
        [ $tries -le $(($2 * 10)) ] || { echo "after $2 s still not: $3"; exit 1; }
        sleep 0.1
    done
}
# The guest of each member, and the guest of the client.
[ "$guests" = 2 ] && home=(0 1 1 2) client=1 || home=(0 1 2 3) client=2
ip link set lo up
ip link add bridge type bridge
ip link set bridge up
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/cluster.key"
{
    printf 'cluster = "guests"\nfabric = "%s"\nkey = "file:cluster.key"\n[election]\nkind = "heartbeat"\n' "$fabric"
    [ -z "${ELECTION:-}" ] || printf '%s\n' "$ELECTION"
    printf '[limits]\nclients = 1\n'
    [ -z "$switch" ] || printf '[switch]\ncontrol = "10.77.9.1:7300"\n'
    for group in 1 2; do
        printf '[[group]]\nid = "g%s"\nprocess = [\n' "$group"
        for n in 1 2 3; do
            printf ' { id = "g%s.%s", address = "10.77.%s.%s%s:7001" },\n' "$group" "$n" "${home[n]}" "$group" "$n"
        done
        printf ']\n'
    done
} >"$work/cluster.toml"
if [ -n "$switch" ]; then
    for last in 1 2; do ip addr add "10.77.9.$last/16" dev bridge; done
    printf 'cluster = "guests"\nmode = "raw"\nforward = "10.77.9.1"\nbackward = "10.77.9.2"\ncontrol = "10.77.9.1:7300"\n' >"$work/switch.toml"
    echo 'key = "file:cluster.key"' >>"$work/switch.toml"
    mkdir -m 700 "$work/switch"
    "$stentor" switch --config "$work/switch.toml" --directory "$work/switch" --wait block >"$work/switch.out" 2>"$work/switch.err" &
    switch=$!
fi
began=$(now)
# Starts a guest, for its first life or a later one.
start() { # GUEST LIFE
    local n=$1 members= group m
    for group in 1 2; do
        for m in 1 2 3; do [ "${home[m]}" != "$n" ] || members="$members g$group.$m:10.77.$n.$group$m"; done
    done
    [ "$n" != "$client" ] || members="$members client:10.77.$n.99"
    {
        printf "WORK='%s' STENTOR='%s' FABRIC='%s' GUEST=%s LIFE='%s' MEMBERS='%s' LINES=%s HOW=%s\n" \
            "$work" "$stentor" "$fabric" "$n" "$2" "${members# }" "$lines" "$how"
        cat "$here/guest.sh"
    } >"$work/guest$n.sh"
    # The guest runs in a separate session.
    UML_TIMEOUT=900 setsid "$rxe/uml-run" "$work/guest$n.sh" \
        "vec0:transport=tap,ifname=tap$n,depth=128,gro=0,mac=02:00:00:00:77:0$n" >"$work/uml$n$2.log" 2>&1 &
    guest[$n]=$!
}
# Ends a guest like a power failure: its processes get no notice. The command lines of all of them contain the name of
# the guest's tap. `uml-run`, which is the first of them, is not killed, and cleans up afterwards.
power_off() { # GUEST
    local pid=${guest[$1]} line one tries=0 left
    while :; do
        left=0
        for line in /proc/[0-9]*/cmdline; do
            one=${line#/proc/} one=${one%/cmdline}
            if [ "$one" != "$pid" ] && tr '\0' ' ' 2>/dev/null <"$line" | grep -q "ifname=tap$1,"; then
                kill -KILL "$one" 2>/dev/null || true
                left=1
            fi
        done
        [ $left = 1 ] || break
        tries=$((tries + 1))
        [ $tries -le 100 ] || { echo "guest $1 does not end"; exit 1; }
    done
    wait "$pid" || true
}
# Removes an incomplete last line of a history, and appends a record that its writer crashed after the last complete
# one.
crashed() { # FILE
    [ -z "$(tail -c 1 "$1")" ] || sed -i '$d' "$1"
    tail -n 1 "$1" | sed -E 's/^(\{"t":[0-9]+,"p":"[^"]*","i":[0-9]+),.*/\1,"e":"crash"}/' >>"$1"
}
for n in $(seq "$guests"); do
    ip tuntap add "tap$n" mode tap
    ip link set "tap$n" master bridge up
    start "$n" ""
done
await begun 60 "the client's first message"
echo "$guests guests, fabric $fabric: $lines messages to two groups begin after $(since "$began")"
await "sent-$((lines / 3))" 120 "a third of the messages sent"
moment=$(now)
if [ "$how" = off ]; then
    power_off "$cut"
    echo "guest $cut has lost its power"
else
    ip link set "tap$cut" nomaster
    echo "the link of guest $cut is cut"
fi
await "sent-$((lines * 2 / 3))" 120 "two thirds of the messages sent"
life=
if [ "$how" = off ]; then
    life=.2
    for m in 1 2 3; do
        [ "${home[m]}" != "$cut" ] || for group in 1 2; do crashed "$work/g$group.$m.jsonl"; done
    done
    echo "it is started again after $(since "$moment")"
    moment=$(now)
    start "$cut" "$life"
    for m in 1 2 3; do
        [ "${home[m]}" != "$cut" ] || for group in 1 2; do
            tries=0
            until grep -qs "ready" "$work/g$group.$m$life.err"; do
                tries=$((tries + 1))
                [ $tries -le 900 ] || { echo "g$group.$m does not come back"; exit 1; }
                sleep 0.1
            done
        done
    done
    echo "its members are back $(since "$moment") after that"
    touch "$work/back"
else
    ip link set "tap$cut" master bridge
    echo "it is restored after $(since "$moment")"
fi
moment=$(now)
await "client.done" 120 "all messages delivered at the client"
echo "the client is done $(since "$moment") after that: $(tail -n 1 "$work/client.err")"
for group in 1 2; do
    for m in 1 2 3; do
        tries=0 out=g$group.$m.out
        [ -z "$life" ] || [ "${home[m]}" != "$cut" ] || out=g$group.$m$life.out
        while ! has_all "$work/$out" "$lines"; do
            tries=$((tries + 1))
            if [ $tries -gt 600 ]; then
                echo "g$group.$m delivered $(wc -l <"$work/$out") of $lines"
                exit 1
            fi
            sleep 0.1
        done
    done
done
echo "everybody has delivered everything $(since "$moment") after that"
touch "$work/stop"
for n in $(seq "$guests"); do
    wait "${guest[$n]}" || { echo "guest $n ended with $?"; exit 1; }
    unset "guest[$n]"
done
if [ -n "$switch" ]; then
    kill -TERM "$switch"
    wait "$switch" || { echo "the switch ended with $?"; exit 1; }
    copies=$(sed -n 's/^passes:.*[ ,]copied \([0-9]*\).*/\1/p' "$work/switch.out")
    echo "the switch made ${copies:-no} copies"
    # The switch copies most of the first third of the lines to six members.
    [ "${copies:-0}" -ge "$lines" ] || { cat "$work/switch.out"; exit 1; }
fi
# A restarted guest has another clock, so `check` gets the first lives before the second ones.
shopt -s nullglob
"$stentor" check --complete --lives-in-order "$work"/g?.?.jsonl "$work/c0.jsonl" "$work"/g?.?.2.jsonl
echo "passed in $(since "$began"); histories of $(($(cat "$work"/*.jsonl | wc -c) / 1024)) KiB; in each guest, at the end:"
cat "$work"/guest*.log
