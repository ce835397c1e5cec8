#!/usr/bin/env bash
# Sends messages through one NATS server to subscribers on three hosts. Prints a line of JSON for each shape.
# usage: unshare -rnm nodes.sh PROGRAM core MTU SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
program=$1 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
start 1 nats-server --addr "$(address 1)" --port 4222 >"$work/server.log" 2>&1
extra=(--server "$(address 1):4222")
each_shape "$@"
