#!/bin/bash
# Inside a guest: the members that are at home here, and the client if it is. WORK, STENTOR, FABRIC, GUEST, MEMBERS and LINES
# are set by run.sh.
set -u
cd "$WORK"
exec >"guest$GUEST.log" 2>&1
fail() { echo "$1"; touch failed; exit 1; }
# The kernel's Soft-RoCE has UDP port 4791 of the guest's first network namespace, and carries nothing in others.
inside=
if [ "$FABRIC" = roce ]; then
    ip netns add inside
    ip link set vec0 netns inside
    inside="ip netns exec inside"
    $inside ip link set lo up
fi
for member in $MEMBERS; do $inside ip addr add "${member#*:}/16" dev vec0; done
$inside ip link set vec0 up
[ "$FABRIC" = roce ] || rdma link add rxe0 type rxe netdev vec0 || fail "no Soft-RoCE on vec0"
mkdir -m 700 /run/stentor
pids=
for member in $MEMBERS; do
    id=${member%:*}
    [ "$id" != client ] || continue
    $inside "$STENTOR" node --config cluster.toml --id "$id" --history "$id.jsonl" --directory /run/stentor --wait block \
        >"$id.out" 2>"$id.err" </dev/null &
    pids="$pids $!"
done
# Lines at a pace, so that a cut is in the middle of something.
lines() {
    for i in $(seq "$LINES"); do
        echo "line $i"
        [ "$i" != 1 ] || touch begun
        [ $((i % 10)) != 0 ] || touch "sent-$i"
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
status=0
for pid in $pids; do kill -TERM "$pid"; done
for pid in $pids; do wait "$pid" || status=1; done
exit $status
