# Sourced by the scripts beside it: a folder for a run, its end, and a place for network namespaces. The names of hosts and links are
# those of the script.
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
