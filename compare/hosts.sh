# Creates three hosts: network namespaces h1, h2 and h3, which a bridge joins by veth pairs with MTU `$mtu`. Host N has the
# addresses 10.9.9.N and 10.9.9.1N. With MTU 0 there is one host, and everything runs on its loopback.
#
# A bash script that `unshare -rnm` runs sources this file. It provides a folder `$work`, and a file system in memory at /run.
# The script adds the processes that it starts to `started`; they are killed when it ends. If the script fails, the last lines
# of all `$work/*.log` are printed.
work=$(mktemp -d)
started=()
end() {
  if (($?)); then tail -n 5 "$work"/*.log >&2 || true; fi
  kill "${started[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT
mount -t tmpfs tmpfs /run
ip link set lo up
if ((mtu)); then
  mkdir -p /run/netns
  ip link add bridge type bridge
  for n in 1 2 3; do
    ip netns add "h$n"
    ip link add "v$n" mtu "$mtu" type veth peer name eth0 mtu "$mtu" netns "h$n"
    ip link set "v$n" master bridge up
    ip -n "h$n" link set lo up
    ip -n "h$n" link set eth0 up
    for last in "$n" "1$n"; do ip -n "h$n" addr add "10.9.9.$last/24" dev eth0; done
  done
  ip link set bridge mtu "$mtu" up
fi

# Prints the address of host N.
address() {
  if ((mtu)); then echo "10.9.9.$1"; else echo 127.0.0.1; fi
}

# Runs a command on host N.
on() {
  local n=$1
  shift
  if ((mtu)); then ip netns exec "h$n" "$@"; else "$@"; fi
}

# Starts a command on host N. The process is killed when the script ends. Its process id is in `$!`.
start() {
  local n=$1
  shift
  if ((mtu)); then ip netns exec "h$n" "$@" & else "$@" & fi
  started+=($!)
}

# Runs `$program` as the sender on host 1 and as receivers on hosts 2 and 3, each with the arguments in `extra`, for each shape
# in turn. The sender prints a line.
each_shape() {
  local shape bytes outstanding messages folder receivers common n
  for shape in "$@"; do
    IFS=: read -r bytes outstanding messages <<<"$shape"
    folder=$work/$bytes-$outstanding
    mkdir "$folder"
    common=(--receivers h1,h2,h3 --folder "$folder" --bytes "$bytes" --outstanding "$outstanding" --messages "$messages"
      --warm-up $((messages / 4)) "${extra[@]}")
    receivers=()
    for n in 2 3; do
      start "$n" "$program" --role receive --name "h$n" "${common[@]}"
      receivers+=($!)
    done
    on 1 "$program" --role send --name h1 "${common[@]}"
    wait "${receivers[@]}"
    rm -rf "$folder"
  done
}

# Runs `$program` as two processes that exchange messages in round trips, for each shape in turn. The processes spin, on
# the first and on the last processor. The process that begins prints a line.
each_pair() {
  local shape bytes outstanding messages folder common pong
  processors
  for shape in "$@"; do
    IFS=: read -r bytes outstanding messages <<<"$shape"
    folder=$work/$bytes-$outstanding
    mkdir "$folder"
    common=(--receivers pong --folder "$folder" --bytes "$bytes" --outstanding "$outstanding" --messages "$messages"
      --warm-up $((messages / 4)) "${extra[@]}")
    taskset -c "$last" "$program" --role pong --name pong "${common[@]}" &
    pong=$!
    started+=("$pong")
    taskset -c "$first" "$program" --role ping --name ping "${common[@]}"
    wait "$pong"
    rm -rf "$folder"
  done
}

# Waits until a process listens at a TCP port of this host.
listening() {
  local port
  port=$(printf '%04X' "$1")
  for _ in $(seq 200); do
    grep -q ":$port 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 && return
    sleep 0.05
  done
  echo "nothing listens at port $1 after 10 s" >&2
  return 1
}

# Sets `$first` and `$last` to the first and the last permitted processor, for two processes that spin.
processors() {
  local list
  list=$(taskset -cp $$)
  list=${list##* }
  first=${list%%[,-]*} last=${list##*[,-]}
}
