#!/usr/bin/env bash
# Sends messages to a group of three members on three hosts. The client runs on the host of the first member. For each
# shape, prints a document of `stentor bench cluster` in one line. Then stops the members, and runs plain programs that
# send the same datagrams or the same records between the same addresses. For each shape, prints a document of `stentor
# bench bound` in one line.
# usage: unshare -rnm nodes.sh STENTOR roce MTU SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
stentor=$1 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/cluster.key"
cat >"$work/cluster.toml" <<CONF
cluster = "compare"
fabric = "roce"
key = "file:cluster.key"
[election]
kind = "heartbeat"
[limits]
message_bytes = 65536
clients = 1
[[group]]
id = "g1"
process = [
$(for n in 1 2 3; do printf '  { id = "g1.%s", address = "10.9.9.%s:7001" },\n' "$n" "$n"; done)
]
CONF
# A member with `--json` prints a document when it stops, and no deliveries. The members of other systems print no deliveries either.
for n in 1 2 3; do
  ip netns exec "h$n" "$stentor" node --json --config "$work/cluster.toml" --id "g1.$n" >/dev/null 2>"$work/g1.$n.err" </dev/null &
  started+=($!)
done
for shape in "$@"; do
  IFS=: read -r bytes outstanding messages <<<"$shape"
  if ! ip netns exec h1 "$stentor" bench cluster --config "$work/cluster.toml" --bind 10.9.9.11 --to g1 --timeout 30 \
    -s "$bytes" --window "$outstanding" -n "$messages" --rounds 1 --json >"$work/document"; then
    { cat "$work/document"; tail -n 3 "$work"/g1.*.err; } >&2
    exit 1
  fi
  tr -d '\n' <"$work/document"
  echo
done
kill "${started[@]}"
wait "${started[@]}" || true
started=()
for shape in "$@"; do
  IFS=: read -r bytes outstanding messages <<<"$shape"
  "$stentor" bench bound --at h1=10.9.9.1,h2=10.9.9.2,h3=10.9.9.3,h1=10.9.9.11 --mtu "$mtu" \
    -s "$bytes" --window "$outstanding" -n "$messages" --json | tr -d '\n'
  echo
done
