# Sourced by the scripts in this directory. Creates the folder of a run and the network namespaces, removes them at the
# end, and defines shared functions.
folder=$(mktemp -d)
pids=
ended() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$folder"
}
trap ended EXIT
trap 'exit 1' INT TERM HUP
mount -t tmpfs none /run
mkdir /run/netns
ip link set lo up

# Ends the script, with the last log lines of all processes.
failed() { # WHY
    echo "$1"
    tail -n 5 "$folder"/*.err
    exit 1
}

# Makes hosts s1 to s4, each with an interface `eth` and the address 10.77.N.1. A bridge joins them by veth pairs v1 to v4.
four_hosts() {
    ip link add bridge type bridge
    ip link set bridge up
    for n in 1 2 3 4; do
        ip netns add "s$n"
        ip link add "v$n" type veth peer name eth netns "s$n"
        ip link set "v$n" master bridge up
        ip -n "s$n" link set lo up
        ip -n "s$n" link set eth up
        ip -n "s$n" address add "10.77.$n.1/16" dev eth
    done
}

# Waits until the process with this log is connected to all members.
connected() { # LOG
    tries=0
    until grep -q "all members are connected" "$1"; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || failed "the process of $1 is not connected to all members"
        sleep 0.1
    done
}
