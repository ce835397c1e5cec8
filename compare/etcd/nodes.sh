#!/usr/bin/env bash
# Sends puts to three etcd nodes on three hosts. The client runs on the host of the first node. The nodes' logs are in
# memory, so that no put waits for a disk. Prints a line of JSON for each shape.
# usage: unshare -rnm nodes.sh PROGRAM put MTU SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
program=$1 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
# On one host the nodes have different ports.
peer() { echo "http://$(address "$1"):238$1"; }
client() { echo "$(address "$1"):237$1"; }
all="h1=$(peer 1),h2=$(peer 2),h3=$(peer 3)"
for n in 1 2 3; do
  start "$n" etcd --name "h$n" --data-dir "/run/etcd$n" --log-level error --initial-cluster "$all" \
    --listen-peer-urls "$(peer "$n")" --initial-advertise-peer-urls "$(peer "$n")" \
    --listen-client-urls "http://$(client "$n")" --advertise-client-urls "http://$(client "$n")" >"$work/etcd$n.log" 2>&1
done
for shape in "$@"; do
  IFS=: read -r bytes outstanding messages <<<"$shape"
  folder=$work/$bytes-$outstanding
  mkdir "$folder"
  on 1 "$program" --servers "$(client 1),$(client 2),$(client 3)" --role send --name h1 --receivers h1 --folder "$folder" \
    --bytes "$bytes" --outstanding "$outstanding" --messages "$messages" --warm-up $((messages / 4))
done
