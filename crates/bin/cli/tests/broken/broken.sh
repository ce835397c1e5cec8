#!/usr/bin/env bash
# Makes clusters to practise on that are broken in one way each, repairs them, and judges whether they work.
#
# Usage: broken.sh list                   lists the names
#        broken.sh create NAME DIRECTORY  makes the cluster in an empty directory, starts it, and prints the complaints of its users;
#                                         a number in place of the name hides what is broken
#        broken.sh judge DIRECTORY        prints the output of the commands; exit code 0 only if the cluster works
#        broken.sh mend DIRECTORY         repairs the cluster as an operator would
#        broken.sh end DIRECTORY          ends its processes
# STENTOR is the command, by default `stentor`. PATIENCE is the number of seconds after which `judge` gives up, by
# default 8. All files stay in the directory, and all addresses are loopback addresses.
set -eu
STENTOR=${STENTOR:-stentor}
names="lost-majority stopped-majority wrong-key other-configuration unresolved-name port-taken file-limit missing-history
wrong-directory other-group-gone"

fail() {
    echo "broken.sh: $1" >&2
    exit 2
}

# Writes FILE, the configuration of a cluster of groups of three on addresses 127.NET.x.
configure() { # FILE FABRIC GROUPS [LINE...]
    local file=$1 fabric=$2 groups=$3 group member
    shift 3
    {
        printf 'cluster = "%s"\nfabric = "%s"\n' "$cluster" "$fabric"
        [ "$fabric" = shm ] || printf 'key = "file:cluster.key"\n'
        printf '[election]\nkind = "heartbeat"\n[limits]\nmessage_bytes = 256\nwindow = 16\nclients = 2\nring_kib = 64\nbody_ring_kib = 64\n'
        [ $# = 0 ] || printf '%s\n' "$@"
        for group in $(seq "$groups"); do
            printf '[[group]]\nid = "g%s"\nprocess = [\n' "$group"
            for member in 1 2 3; do
                printf ' { id = "g%s.%s", address = "127.%s.%s:7101" },\n' "$group" "$member" "$net" "$((10 * group + member))"
            done
            printf ']\n'
        done
    } >"$file"
    [ -e cluster.key ] || (umask 077 && head -c 32 /dev/urandom | base64 >cluster.key)
}

# Starts a member in a session of its own: members that are stopped when this script ends would get SIGHUP otherwise. Its
# output is appended to ID.out and ID.err.
start() { # ID [CONFIG [RUN]]
    setsid "$STENTOR" node --config "${2:-cluster.toml}" --directory "${3:-run}" --id "$1" --wait block >>"$1.out" 2>>"$1.err" &
    echo "$1 $!" >>pids
}

start_all() { # GROUPS
    local group member
    for group in $(seq "$1"); do
        for member in 1 2 3; do start "g$group.$member"; done
    done
}

pid_of() { # ID
    awk -v id="$1" '$1 == id { pid = $2 } END { print pid }' pids
}

tell() { # SIGNAL ID...
    local signal=$1 id
    shift
    for id; do kill "-$signal" "$(pid_of "$id")" 2>/dev/null || true; done
}

# Waits until a member has printed a text on its standard error.
await() { # ID TEXT
    local tries=0
    until grep -qs "$2" "$1.err"; do
        tries=$((tries + 1))
        [ $tries -le 300 ] || fail "$1 does not say: $2"
        sleep 0.1
    done
}

connected() { # ID...
    local id
    for id; do await "$id" "all members are connected"; done
}

# Ends all members and waits for them.
end_all() {
    local pid
    [ -e pids ] || return 0
    while read -r _ pid; do kill -CONT "$pid" 2>/dev/null && kill -TERM "$pid" 2>/dev/null || true; done <pids
    sleep 0.3
    while read -r _ pid; do
        for _ in $(seq 30); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null || true
    done <pids
    rm -f pids
}

# Sends three lines to groups, and asks for the leaders.
works() { # GROUPS
    local good=0
    seq 3 | "$STENTOR" cast --config cluster.toml --directory run --to "$1" --timeout "${PATIENCE:-8}" || good=1
    "$STENTOR" leader show --config cluster.toml --directory run || good=1
    return $good
}

create() { # NAME
    case $1 in
    lost-majority)
        configure cluster.toml shm 1
        start_all 1
        connected g1.1 g1.2 g1.3
        tell KILL g1.2 g1.3
        echo "Two of three processes were killed by the kernel last night. Nothing is delivered."
        ;;
    stopped-majority)
        configure cluster.toml roce 1
        start_all 1
        connected g1.1 g1.2 g1.3
        tell STOP g1.1 g1.2
        echo "All processes are there, says ps. Nothing is delivered."
        ;;
    wrong-key)
        configure cluster.toml roce 1
        sed 's/cluster.key/old.key/' cluster.toml >host3.toml
        (umask 077 && head -c 32 /dev/urandom | base64 >old.key)
        start g1.1
        start g1.2
        start g1.3 host3.toml
        echo "The host of g1.3 was set up anew from last year's image. Clients cannot connect."
        ;;
    other-configuration)
        configure cluster.toml roce 1
        sed 's/window = 16/window = 32/' cluster.toml >host3.toml
        start g1.1
        start g1.2
        start g1.3 host3.toml
        echo "Somebody tuned g1.3 by hand. Clients cannot connect."
        ;;
    unresolved-name)
        configure cluster.toml roce 1
        cp cluster.toml intended.toml
        sed -i "s/127.$net.13:/member3.cluster.invalid:/" cluster.toml
        start g1.1
        start g1.2
        start g1.3
        echo "The new cluster was never complete."
        ;;
    port-taken)
        configure cluster.toml roce 1
        perl -MIO::Socket::INET -e '
            my $socket = IO::Socket::INET->new(LocalAddr => $ARGV[0], LocalPort => 7101, Listen => 5) or die "cannot listen: $!";
            $| = 1; print "listens\n"; sleep 3600' "127.$net.12" >another.out &
        echo "another $!" >>pids
        until [ -s another.out ]; do sleep 0.1; done
        start g1.1
        start g1.2
        start g1.3
        await g1.2 "^error: "
        echo "g1.2 ends as soon as it is started."
        ;;
    file-limit)
        configure cluster.toml shm 1
        start g1.1
        (ulimit -n 8 && exec setsid "$STENTOR" node --config cluster.toml --directory run --id g1.2 >>g1.2.out 2>>g1.2.err) &
        echo "g1.2 $!" >>pids
        start g1.3
        await g1.2 "^error: "
        echo "g1.2 ends as soon as its service manager starts it."
        ;;
    missing-history)
        configure cluster.toml shm 1
        for id in g1.1 g1.2 g1.3; do
            setsid "$STENTOR" node --config cluster.toml --directory run --id $id --history $id.jsonl >>$id.out 2>>$id.err &
            echo "$id $!" >>pids
        done
        connected g1.1 g1.2 g1.3
        mkdir archive
        seq 3 | "$STENTOR" cast --config cluster.toml --directory run --to g1 --history archive/c0.jsonl >cast.out 2>cast.err
        end_all
        echo "The nightly check of the histories fails since the clients' logs are rotated."
        ;;
    wrong-directory)
        configure cluster.toml shm 1
        start g1.1
        start g1.2
        start g1.3 cluster.toml run-by-hand
        echo "g1.3 was started by hand after maintenance. The cluster is not complete."
        ;;
    other-group-gone)
        configure cluster.toml shm 2
        start_all 2
        connected g1.1 g1.2 g1.3 g2.1 g2.2 g2.3
        tell KILL g2.1 g2.2
        echo "The machines of the second group were replaced. Orders that concern both groups are stuck."
        ;;
    *) fail "there is no broken cluster \`$1\`; $0 list names them" ;;
    esac
}

judge() { # NAME
    case $1 in
    missing-history) "$STENTOR" check ./*.jsonl ;;
    other-group-gone) works g1,g2 ;;
    *) works g1 ;;
    esac
}

mend() { # NAME
    case $1 in
    # A majority has lost its memory, so the group begins anew.
    lost-majority) end_all && start_all 1 && connected g1.1 g1.2 g1.3 ;;
    stopped-majority) tell CONT g1.1 g1.2 ;;
    wrong-key | other-configuration)
        tell TERM g1.3
        sleep 1
        start g1.3
        connected g1.3
        ;;
    unresolved-name)
        end_all
        mv intended.toml cluster.toml
        start_all 1
        connected g1.1 g1.2 g1.3
        ;;
    port-taken)
        tell TERM another
        start g1.2
        connected g1.2
        ;;
    file-limit)
        start g1.2
        connected g1.2
        ;;
    missing-history) mv archive/c0.jsonl . ;;
    wrong-directory)
        tell TERM g1.3
        sleep 1
        start g1.3
        connected g1.3
        ;;
    other-group-gone) end_all && start_all 2 && connected g1.1 g1.2 g1.3 g2.1 g2.2 g2.3 ;;
    esac
}

[ $# -gt 0 ] || fail "say list, create NAME DIRECTORY, judge DIRECTORY, mend DIRECTORY or end DIRECTORY"
what=$1
case $what in
list)
    printf '%s\n' $names
    exit 0
    ;;
create)
    name=${2:?a name} directory=${3:?a directory}
    mkdir -p "$directory" && cd "$directory"
    [ -z "$(ls -A)" ] || fail "$directory is not empty"
    case $name in
    *[!0-9]*) ;;
    *) name=$(printf '%s\n' $names | sed -n "${name}p") ;;
    esac
    number=$(printf '%s\n' $names | grep -nx "$name" | cut -d: -f1)
    [ -n "$number" ] || fail "there is no broken cluster \`$2\`; $0 list names them"
    net=$((100 + number)).$(($$ % 250)) cluster="broken-$number-$$"
    printf '%s %s %s\n' "$name" "$net" "$cluster" >.broken
    ;;
judge | mend | end) cd "${2:?a directory}" && read -r name net cluster <.broken ;;
*) fail "unknown: $what" ;;
esac
case $what in
end) end_all ;;
*) "$what" "$name" ;;
esac
