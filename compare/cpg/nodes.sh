#!/usr/bin/env bash
# Sends messages through three corosync nodes on three hosts. Prints a line of JSON for each shape.
# usage: unshare -rnm nodes.sh PROGRAM udpu|knet MTU SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
program=$1 transport=$2 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
for n in 1 2 3; do
  mkdir "$work/state$n"
  cat >"$work/$n.conf" <<CONF
totem {
  version: 2
  cluster_name: compare
  transport: $transport
  crypto_cipher: none
  crypto_hash: none
  netmtu: $mtu
}
system {
  sched_rr: no
  state_dir: $work/state$n
}
logging {
  to_stderr: yes
  to_syslog: no
  to_logfile: no
}
nodelist {
$(for m in 1 2 3; do printf '  node {\n    nodeid: %s\n    name: h%s\n    ring0_addr: 10.9.9.%s\n  }\n' "$m" "$m" "$m"; done)
}
CONF
  # Each node has a lock file in /run, so each node needs a separate /run.
  ip netns exec "h$n" sh -c "mount -t tmpfs tmpfs /run; exec corosync -f -c $work/$n.conf" 2>"$work/$n.log" &
  started+=($!)
done
for n in 1 2 3; do
  for _ in $(seq 300); do
    grep -q 'Sync members\[3\]' "$work/$n.log" && continue 2
    sleep 0.1
  done
  { echo "node $n did not find the others within 30 s:"; tail -n 5 "$work/$n.log"; } >&2
  exit 1
done
# knet discovers the path MTU first.
sleep 2
extra=()
each_shape "$@"
