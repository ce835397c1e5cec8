#!/bin/bash
# Inside a guest with Soft-RoCE: a program of nothing but calls of libibverbs and `stentor bench fabric --fabric verbs`, in turns.
# WORK, HERE, RAW, STENTOR and ROUNDS are set by cargo xtask.
set -eu
cd "$WORK"
exec >speed.log 2>&1
. "$HERE/../../../fabric-verbs/tests/device.sh"
for round in $(seq "$ROUNDS"); do
	for what in write send; do
		"$RAW" rxe0 1 $what lat 8 1000 >"raw-$what-lat.$round"
		"$RAW" rxe0 1 $what bw 65536 1000 >"raw-$what-bw.$round"
	done
	"$STENTOR" bench fabric --fabric verbs -s 8 -n 900 --rounds 3 --json >"lat.$round"
	"$STENTOR" bench fabric --fabric verbs -s 65536 -n 9000 --rounds 3 --json >"bw.$round"
done
