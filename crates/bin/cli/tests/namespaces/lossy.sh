#!/bin/sh
# Sends bulk data from one host to another over a link that loses packets or is slow. The data goes over RoCEv2 by
# `channel cat`, as plain datagrams at a fixed rate, or over a TCP connection that shares the link with `channel cat`.
#
#   unshare -rnm lossy.sh STENTOR WHAT LOSS RATE QUEUE SECONDS
#
# WHAT is `ours`, `raw` or `shared`. Of 1000 packets to port 4791 the link loses LOSS in each direction. RATE is the
# rate in Mbit/s of whole frames, with a queue of QUEUE ms; with rate 0 the processor is the limit. The script prints
# lines `NAME VALUE`: rates of payload in Mbit/s, the peak memory in KiB, and the number of packets that the link lost.
# Everything is removed with the namespaces.
set -eu
stentor=$1 what=$2 loss=$3 rate=$4 queue=$5 seconds=$6
. "$(dirname "$0")/hosts.sh"
four_hosts
# The kernel splits runs of packets before they reach the link, as a NIC does. Otherwise a whole run would be lost or
# queued as one packet.
for n in 1 2; do ip -n "s$n" link set eth gso_max_segs 1; done
if [ "$loss" != 0 ]; then
    nft add table netdev loss
    for n in 1 2; do
        nft "add chain netdev loss v$n { type filter hook ingress device v$n priority 0; }"
        nft add rule netdev loss "v$n" udp dport 4791 numgen random mod 1000 lt "$loss" counter drop
    done
fi
if [ "$rate" != 0 ]; then
    for n in 1 2; do tc qdisc add dev "v$n" root tbf rate "${rate}mbit" burst 16k latency "${queue}ms"; done
fi
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$folder/key"

# Prints the peak memory of a process, in KiB.
memory() { # PID
    sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}
# Prints the last number with this name in a document.
number() { # FILE NAME
    sed -n 's/.*"'"$2"'":[[:space:]]*\([0-9.]*\).*/\1/p' "$1" | tail -n 1
}
ours() {
    cat="channel cat --fabric roce --key $folder/key"
    # `ip netns exec` executes the program in its place, so that the shell knows its pid.
    ip netns exec s2 "$stentor" $cat --listen 10.77.2.1:7001 >/dev/null 2>"$folder/listen.err" &
    listener=$!
    mkfifo "$folder/zeros"
    timeout "$seconds" cat /dev/zero >"$folder/zeros" &
    ip netns exec s1 "$stentor" $cat --json --timeout 10 10.77.2.1:7001 <"$folder/zeros" >"$folder/cat.json" \
        2>"$folder/cat.err" &
    sender=$!
    pids="$listener $sender"
    sleep $((seconds - 1))
    echo "sender_kib $(memory $sender)"
    echo "listener_kib $(memory $listener)"
    wait $sender || failed "the sender failed"
    wait $listener || failed "the listener failed"
    pids=
    number "$folder/cat.json" mb_per_s | awk '{ printf "ours_mbit %.1f\n", $1 * 8 }'
}
# The last rate in iperf3's document is the rate at which payload arrived.
iperf() { # NAME MORE
    name=$1
    shift
    ip netns exec s2 iperf3 --server --one-off --port 4791 >"$folder/server.out" 2>"$folder/server.err" &
    server=$!
    sleep 0.3
    ip netns exec s1 iperf3 --client 10.77.2.1 --port 4791 --time "$seconds" --json "$@" >"$folder/iperf.json" \
        2>"$folder/iperf.err" || failed "iperf3 failed"
    wait $server
    number "$folder/iperf.json" bits_per_second | awk -v name="$name" '{ printf "%s_mbit %.1f\n", name, $1 / 1e6 }'
}
case $what in
ours) ours ;;
# A little less than the link can carry, including the headers.
raw) iperf raw --udp --length 1024 --bitrate "$((rate * 90 / 100))M" ;;
shared)
    iperf tcp --congestion cubic &
    tcp=$!
    sleep 0.3
    ours
    wait $tcp
    ;;
esac
if [ "$loss" != 0 ]; then
    nft list table netdev loss | awk '/counter/ { for (n = 1; n < NF; n++) if ($n == "packets") sum += $(n + 1) } END { print "lost", sum }'
fi
