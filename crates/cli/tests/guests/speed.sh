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
	# As many messages as the plain program's: the rate of a few is that of their beginning and their end.
	"$STENTOR" bench fabric --fabric verbs -s 8 -n 1000 --rounds 1 --only 'raw WRITE' --only 'SEND/RECV, one way' --json \
		>"lat.$round"
	"$STENTOR" bench fabric --fabric verbs -s 65536 -n 17000 --rounds 1 --only 'WRITE unsignalled, rate' \
		--only 'SEND/RECV, rate' --json >"bw.$round"
done
