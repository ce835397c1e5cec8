#!/usr/bin/env bash
# Sends messages by MPI_Bcast among three processes, of which the first is the root. Prints a line of JSON for each
# shape.
# usage: unshare -rnm nodes.sh PROGRAM vader|tcp 0 SIZE:OUTSTANDING:MESSAGES...
set -euo pipefail
program=$1 how=$2 mtu=$3
shift 3
. "$(dirname "$0")/../hosts.sh"
mpicc -O2 -Wall -Wextra -Werror -o "$work/bcast" "$(dirname "$0")/bcast.c"
# Waiting processes yield, because there may be fewer processors than processes.
run=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n 3 --mca pml ob1 --mca btl "self,$how"
  --mca btl_tcp_if_include lo --mca mpi_yield_when_idle 1)
for shape in "$@"; do
  IFS=: read -r bytes outstanding messages <<<"$shape"
  folder=$work/$bytes-$outstanding
  mkdir "$folder"
  warm_up=$((messages / 4))
  "${run[@]}" "$work/bcast" "$folder" "$bytes" "$outstanding" $((messages + warm_up)) >"$work/mpirun.log" 2>&1
  "$program" --role send --name h1 --receivers h1,h2,h3 --folder "$folder" --bytes "$bytes" --outstanding "$outstanding" \
    --messages "$messages" --warm-up "$warm_up"
  rm -rf "$folder"
done
