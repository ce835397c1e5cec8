// Broadcasts messages by MPI_Bcast. Each process writes a file of times.
//
// usage: mpirun -n N bcast FOLDER BYTES OUTSTANDING MESSAGES
//
// Rank 0 sends. A barrier follows each series of OUTSTANDING broadcasts, so that no more broadcasts are outstanding. If
// OUTSTANDING is 1, each broadcast ends before the next one begins. Rank r writes the time at which each broadcast
// returned to FOLDER/h(r+1). Rank 0 also writes the time of each call to FOLDER/sent. Times are 64-bit numbers in the
// machine's byte order: nanoseconds of the monotonic clock.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void *room(size_t bytes) {
  void *place = malloc(bytes);
  if (place == NULL) {
    fprintf(stderr, "no memory for %zu bytes\n", bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return place;
}

static void store(const char *folder, const char *name, const uint64_t *times, size_t count) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(times, sizeof *times, count, file) != count || fclose(file) != 0) {
    fprintf(stderr, "cannot write %s\n", path);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc != 5) {
    fprintf(stderr, "usage: bcast FOLDER BYTES OUTSTANDING MESSAGES\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int bytes = atoi(argv[2]);
  size_t outstanding = strtoul(argv[3], NULL, 10), messages = strtoul(argv[4], NULL, 10);
  char *payload = room((size_t)bytes);
  uint64_t *sent = room(messages * sizeof *sent), *delivered = room(messages * sizeof *delivered);
  memset(payload, rank == 0 ? 7 : 0, (size_t)bytes);
  MPI_Barrier(MPI_COMM_WORLD);
  for (size_t n = 0; n < messages; n++) {
    sent[n] = now();
    MPI_Bcast(payload, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    delivered[n] = now();
    if ((n + 1) % outstanding == 0) MPI_Barrier(MPI_COMM_WORLD);
  }
  if (bytes > 0 && (payload[0] != 7 || payload[bytes - 1] != 7)) {
    fprintf(stderr, "rank %d did not receive the root's payload\n", rank);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  char name[32];
  snprintf(name, sizeof name, "h%d", rank + 1);
  store(argv[1], name, delivered, messages);
  if (rank == 0) store(argv[1], "sent", sent, messages);
  MPI_Finalize();
  return 0;
}
