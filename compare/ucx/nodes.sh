#!/usr/bin/env bash
# Sends messages between two processes of ucx_perftest: in round trips if one message is outstanding, otherwise in a
# stream. For each shape, prints the payload, the number of outstanding messages, and the last line of ucx_perftest.
# usage: unshare -rnm nodes.sh - tcp|posix 0 SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
how=$2 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
processors
export UCX_TLS=$how,self
for shape in "$@"; do
  IFS=: read -r bytes outstanding messages <<<"$shape"
  if ((outstanding > 1)); then way=(-t tag_bw -O "$outstanding"); else way=(-t tag_lat); fi
  taskset -c "$first" ucx_perftest >"$work/server.log" 2>&1 &
  server=$!
  started+=("$server")
  listening 13337
  taskset -c "$last" ucx_perftest -f -v "${way[@]}" -s "$bytes" -n "$messages" -w $((messages / 4)) 127.0.0.1 >"$work/client.log" 2>&1
  wait "$server"
  echo "$bytes $outstanding $(tail -n 1 "$work/client.log")"
done
