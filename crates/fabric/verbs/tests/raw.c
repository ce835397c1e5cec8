// Measures a program that only calls libibverbs. Its latency is the lower bound for `stentor bench fabric --fabric
// verbs`. Two processes use one device like ib_write_lat, ib_send_lat, ib_write_bw and ib_send_bw. They yield while
// they wait, so that a guest with one processor suffices.
//
//   raw DEVICE GID_INDEX write|send lat|lazy|bw BYTES ITERATIONS
//
// Prints half of the median round-trip time in microseconds, or the rate up to the last completion in MB/s. `lat` waits
// for the completion of each of its messages, like ib_write_lat and ib_send_lat. `lazy` requests a completion only for
// every EACH-th message, like the bench. The depth of the queues and the number of messages per completion are the same
// as in the bench. All messages have the same target address, as in ib_send_bw.
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH = 64, INLINE = 220, EACH = 32 };

// Describes a queue pair and its memory to the other process.
struct told {
	uint64_t va;
	uint32_t number, rkey;
	union ibv_gid gid;
};

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static uint8_t *memory;
static uint32_t granted;
static struct told there;
static uint64_t sent, received;

static void no(const char *what) {
	perror(what);
	exit(1);
}

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Memory layout: the source of sent data, followed by the target of received data.
static void open_device(const char *name, int gid_index, size_t bytes, int other) {
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;
	for (int n = 0; n < count; n++)
		if (!strcmp(ibv_get_device_name(list[n]), name))
			context = ibv_open_device(list[n]);
	if (!context)
		no("no such device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	memory = aligned_alloc(4096, (2 * bytes + 4095) / 4096 * 4096);
	memset(memory, 0, 2 * bytes);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	if (!pd || !cq || !(mr = ibv_reg_mr(pd, memory, 2 * bytes, rights)))
		no("protection domain, completion queue, region");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = INLINE},
	};
	if (!(qp = ibv_create_qp(pd, &init)))
		no("queue pair");
	granted = init.cap.max_inline_data;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		no("INIT");
	struct ibv_port_attr port;
	struct told told = {.va = (uintptr_t)memory, .number = qp->qp_num, .rkey = mr->rkey};
	if (ibv_query_gid(context, 1, gid_index, &told.gid) || ibv_query_port(context, 1, &port))
		no("GID or port");
	if (write(other, &told, sizeof told) != sizeof told || read(other, &there, sizeof there) != sizeof there)
		no("exchange");
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = there.number, .rq_psn = 1,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .sgid_index = gid_index}},
	};
	rtr.ah_attr.grh.dgid = there.gid;
	if (ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		no("RTR");
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 1, .max_rd_atomic = 1,
	};
	if (ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC))
		no("RTS");
}

static void receive(size_t bytes) {
	struct ibv_sge sge = {.addr = (uintptr_t)memory + bytes, .length = bytes, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	if (ibv_post_recv(qp, &wr, &bad))
		no("receive");
}

static void post(int send, size_t bytes, int signalled) {
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = bytes, .lkey = mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = send ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
		.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) | (bytes <= granted ? IBV_SEND_INLINE : 0),
		.wr.rdma = {.remote_addr = there.va + bytes, .rkey = there.rkey},
	}, *bad;
	if (ibv_post_send(qp, &wr, &bad))
		no("post");
}

static void poll_once(size_t bytes) {
	struct ibv_wc wc[16];
	int count = ibv_poll_cq(cq, 16, wc);
	for (int n = 0; n < count; n++) {
		if (wc[n].status != IBV_WC_SUCCESS) {
			fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc[n].status));
			exit(1);
		}
		if (wc[n].opcode == IBV_WC_RECV) {
			received++;
			receive(bytes);
		} else {
			sent++;
		}
	}
	if (count <= 0)
		sched_yield();
}

static int by_size(const void *a, const void *b) {
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

// Waits until the send queue has room for one more request. Every EACH-th request is signalled.
static void make_room(uint64_t n, size_t bytes) {
	while (n > sent * EACH + DEPTH)
		poll_once(bytes);
}

// Measures one-way latency. The last byte of a message identifies the iteration.
static void latency(int send, size_t bytes, uint64_t iterations, int first, int lazy) {
	uint64_t *took = calloc(iterations, sizeof *took);
	volatile uint8_t *last = memory + 2 * bytes - 1;
	// The clock is read once per iteration, as in the bench: in a guest, reading it takes a tenth of a round trip.
	uint64_t before = now();
	for (uint64_t n = 1; n <= iterations; n++) {
		for (int turn = 0; turn < 2; turn++) {
			if (turn == !first) {
				memory[bytes - 1] = n;
				if (lazy)
					make_room(n, bytes);
				post(send, bytes, !lazy || n % EACH == 0);
			} else if (send) {
				while (received < n)
					poll_once(bytes);
			} else {
				while (*last != (uint8_t)n)
					sched_yield();
			}
		}
		while (!lazy && sent < n)
			poll_once(bytes);
		uint64_t time = now();
		took[n - 1] = time - before;
		before = time;
	}
	qsort(took, iterations, sizeof *took, by_size);
	if (first)
		printf("%.3f\n", took[iterations / 2] / 2000.0);
}

// The sender keeps DEPTH requests outstanding and requests a completion for every EACH-th.
static void bandwidth(int send, size_t bytes, uint64_t iterations, int first) {
	iterations = iterations / EACH * EACH;
	if (!first) {
		while (send && received < iterations)
			poll_once(bytes);
		return;
	}
	uint64_t began = now();
	for (uint64_t n = 1; n <= iterations; n++) {
		make_room(n, bytes);
		post(send, bytes, n % EACH == 0);
	}
	while (sent * EACH < iterations)
		poll_once(bytes);
	printf("%.3f\n", bytes * iterations * 1000.0 / (now() - began));
}

int main(int argc, char **argv) {
	if (argc != 7) {
		fprintf(stderr, "usage: raw DEVICE GID_INDEX write|send lat|lazy|bw BYTES ITERATIONS\n");
		return 2;
	}
	int send = !strcmp(argv[3], "send"), ends[2], status = 0;
	size_t bytes = strtoul(argv[5], NULL, 0);
	uint64_t iterations = strtoul(argv[6], NULL, 0);
	if (!bytes || !iterations || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		no("arguments");
	pid_t child = fork();
	int first = child != 0, other = ends[first];
	char byte = 0;
	open_device(argv[1], atoi(argv[2]), bytes, other);
	for (int n = 0; send && n < DEPTH; n++)
		receive(bytes);
	// Both processes are ready before either begins, and neither exits before both are done.
	if (write(other, &byte, 1) != 1 || read(other, &byte, 1) != 1)
		no("begin");
	if (strcmp(argv[4], "bw"))
		latency(send, bytes, iterations, first, !strcmp(argv[4], "lazy"));
	else
		bandwidth(send, bytes, iterations, first);
	if (write(other, &byte, 1) != 1 || read(other, &byte, 1) != 1)
		no("end");
	if (first)
		waitpid(child, &status, 0);
	return status != 0;
}
