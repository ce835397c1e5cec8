#!/bin/bash
# Runs inside a guest: the members of this guest, and the client if it belongs here. run.sh sets WORK, STENTOR, FABRIC,
# GUEST, MEMBERS, LINES, HOW and LIFE, which is empty for the first life of a guest.
set -u
cd "$WORK"
exec >"guest$GUEST$LIFE.log" 2>&1
fail() { echo "$1"; touch failed; exit 1; }
# The kernel's Soft-RoCE owns UDP port 4791 of the guest's first network namespace. It transfers no data in other
# namespaces.
inside=
if [ "$FABRIC" = roce ]; then
    ip netns add inside
    ip link set vec0 netns inside
    inside="ip netns exec inside"
    $inside ip link set lo up
fi
for member in $MEMBERS; do $inside ip addr add "${member#*:}/16" dev vec0; done
# Processes of this guest's previous life may hold the tap for a moment.
tries=0
until $inside ip link set vec0 up; do
    tries=$((tries + 1))
    [ $tries -le 100 ] || fail "vec0 cannot be set up: somebody else holds its tap"
    sleep 0.1
done
[ "$FABRIC" = roce ] || rdma link add rxe0 type rxe netdev vec0 || fail "no Soft-RoCE on vec0"
mkdir -m 700 /run/stentor
pids=
for member in $MEMBERS; do
    id=${member%:*}
    [ "$id" != client ] || continue
    $inside "$STENTOR" node --config cluster.toml --id "$id" --history "$id$LIFE.jsonl" --directory /run/stentor \
        --wait block >"$id$LIFE.out" 2>"$id$LIFE.err" </dev/null &
    pids="$pids $!"
done
# Sends the lines slowly, so that a cut happens in the middle of the transfer.
lines() {
    for i in $(seq "$LINES"); do
        echo "line $i"
        [ "$i" != 1 ] || touch begun
        [ $((i % 10)) != 0 ] || touch "sent-$i"
        # Restarted members must receive the rest of the lines.
        while [ "$HOW" = off ] && [ "$i" = $((LINES * 2 / 3)) ] && [ ! -e back ]; do sleep 0.1; done
        busybox usleep 10000
    done
}
case $MEMBERS in *client:*)
    lines | $inside "$STENTOR" cast --config cluster.toml --to g1,g2 --bind "${MEMBERS##*client:}" --timeout 60 \
        --history c0.jsonl --directory /run/stentor --wait block 2>client.err
    status=$?
    [ $status = 0 ] || fail "the client ended with $status"
    touch client.done
    ;;
esac
while [ ! -e stop ]; do sleep 0.2; done
# Prints the memory that the guest and its members use.
value() { sed -n "s/^$2:[[:space:]]*\([0-9]*\).*/\1/p" "$1"; }
memory=$(($(value /proc/meminfo MemTotal) - $(value /proc/meminfo MemAvailable)))
echo "guest $GUEST: up for $(cut -d ' ' -f 1 /proc/uptime) s, $memory KiB of memory in use; each member in KiB:"
for pid in $pids; do
    echo "    $(value "/proc/$pid/status" VmRSS) resident, $(value "/proc/$pid/status" VmPin) pinned for the device"
done
[ "$FABRIC" = roce ] || rdma resource show
status=0
for pid in $pids; do kill -TERM "$pid"; done
for pid in $pids; do wait "$pid" || status=1; done
exit $status
