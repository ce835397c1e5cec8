#!/bin/bash
# Runs inside a guest with Soft-RoCE: a program that only calls libibverbs and `stentor bench fabric --fabric verbs`, in
# turns. `cargo xtask` sets WORK, HERE, RAW, STENTOR, ROUNDS, HOPS and STREAM (messages of each kind in a round).
set -eu
cd "$WORK"
exec >speed.log 2>&1
. "$HERE/../../../../fabric/verbs/tests/device.sh"
theirs() {
	for what in write send; do
		for how in lat lazy; do "$RAW" rxe0 1 $what $how 8 "$HOPS" >"raw-$what-$how.$round"; done
		"$RAW" rxe0 1 $what bw 65536 "$STREAM" >"raw-$what-bw.$round"
	done
}
# The bench sends as many messages as the plain program, because the rate of a few messages is dominated by the start
# and the end. The bench sends one message of 64 KiB where it would send 17 short ones.
ours() {
	"$STENTOR" bench fabric --fabric verbs -s 8 -n "$HOPS" --rounds 1 --only 'raw WRITE' --only 'SEND/RECV, one way' --json \
		>"lat.$round"
	"$STENTOR" bench fabric --fabric verbs -s 65536 -n $((17 * STREAM)) --rounds 1 --only 'WRITE unsignalled, rate' \
		--only 'SEND/RECV, rate' --json >"bw.$round"
}
for round in $(seq "$ROUNDS"); do
	# Neither is always the first.
	if [ $((round % 2)) = 0 ]; then theirs && ours; else ours && theirs; fi
done
