#!/usr/bin/env bash
# Sends messages in round trips between two processes of fi_pingpong. For each shape, prints the payload, 1, and the
# last line of fi_pingpong.
# usage: unshare -rnm nodes.sh - tcp-msg|tcp-rdm|shm-rdm 0 SIZE:1:MESSAGES...
set -euo pipefail
how=$2 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
processors
for shape in "$@"; do
  IFS=: read -r bytes outstanding messages <<<"$shape"
  run=(fi_pingpong -p "${how%-*}" -e "${how#*-}" -I "$messages" -S "$bytes")
  taskset -c "$first" "${run[@]}" >"$work/server.log" 2>&1 &
  server=$!
  started+=("$server")
  listening 47592
  taskset -c "$last" "${run[@]}" 127.0.0.1 >"$work/client.log" 2>&1
  wait "$server"
  echo "$bytes $outstanding $(tail -n 1 "$work/client.log")"
done
