// Makes golden captures of the packets between two queue pairs on two Soft-RoCE devices of one kernel.
//
// Usage: golden DEVICE_A DEVICE_B INTERFACE atomic|sendimm|uc FILE. A is the requester, B the responder. Packets to
// port 4791 on INTERFACE are written to FILE (pcap, Ethernet). Byte i of an operation with L bytes is L + 7 i.
// golden.sh runs this program.
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GID_INDEX = 1, BYTES = 65536, SNAP = 65535, PSN_A = 0xfffffe, PSN_B = 0x200, IMM = 0xdeadbeef };

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq, *inbox;
	struct ibv_mr *mr;
	uint8_t *memory;
	union ibv_gid gid;
};

static void check(int good, const char *what) {
	if (!good) {
		fprintf(stderr, "golden: %s\n", what);
		exit(1);
	}
}

static struct ibv_wc wait_for(struct ibv_cq *cq, const char *what) {
	struct ibv_wc wc;
	for (long n = 0; n < 100000; n++) {
		if (ibv_poll_cq(cq, 1, &wc) == 1) {
			check(wc.status == IBV_WC_SUCCESS, what);
			return wc;
		}
		usleep(50);
	}
	check(0, what);
	return wc;
}

static struct side open_side(const char *name, enum ibv_qp_type type) {
	struct side side = {0};
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;
	for (int n = 0; n < count; n++)
		if (!strcmp(ibv_get_device_name(list[n]), name))
			context = ibv_open_device(list[n]);
	check(context != NULL, "no such device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	side.cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	side.inbox = ibv_create_cq(context, 64, NULL, NULL, 0);
	side.memory = aligned_alloc(4096, BYTES);
	memset(side.memory, 0, BYTES);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	side.mr = ibv_reg_mr(pd, side.memory, BYTES, rights);
	struct ibv_qp_init_attr init = {
		.send_cq = side.cq, .recv_cq = side.inbox, .qp_type = type,
		.cap = {.max_send_wr = 16, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1},
	};
	side.qp = ibv_create_qp(pd, &init);
	check(side.mr && side.qp && !ibv_query_gid(context, 1, GID_INDEX, &side.gid), "cannot create the verbs objects");
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};
	// An unreliable connection has no READs.
	if (type == IBV_QPT_UC)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	check(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "init");
	return side;
}

static void connect_side(struct side *side, struct side *to, uint32_t psn, uint32_t peer_psn, int reliable) {
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to->qp->qp_num, .rq_psn = peer_psn,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 14,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .sgid_index = GID_INDEX, .dgid = to->gid}},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	mask |= reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
	check(!ibv_modify_qp(side->qp, &rtr, mask), "ready to receive");
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = psn, .max_rd_atomic = 16,
	};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	mask |= reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0;
	check(!ibv_modify_qp(side->qp, &rts, mask), "ready to send");
}

static void post(struct side *side, struct ibv_send_wr wr, uint32_t bytes, const char *what) {
	struct ibv_sge sge = {(uintptr_t)side->memory, bytes, side->mr->lkey};
	struct ibv_send_wr *bad;
	wr.sg_list = &sge;
	wr.num_sge = bytes > 0;
	wr.send_flags |= IBV_SEND_SIGNALED;
	check(!ibv_post_send(side->qp, &wr, &bad), what);
	wait_for(side->cq, what);
}

static void atomics(struct side *a, struct side *b) {
	uint64_t *word = (uint64_t *)b->memory, *old = (uint64_t *)a->memory;
	word[0] = 0x0123456789abcdef;
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
	wr.wr.atomic.rkey = b->mr->rkey;
	wr.wr.atomic.remote_addr = (uintptr_t)b->memory;
	wr.wr.atomic.compare_add = 5;
	post(a, wr, 8, "fetch-and-add");
	check(*old == 0x0123456789abcdef, "fetch-and-add returned another value");
	wr.wr.atomic.compare_add = UINT64_MAX;
	post(a, wr, 8, "fetch-and-add of -1");
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 0x0123456789abcdf3;
	wr.wr.atomic.swap = 0xfedcba9876543210;
	post(a, wr, 8, "compare-and-swap");
	check(*old == 0x0123456789abcdf3 && word[0] == 0xfedcba9876543210, "compare-and-swap did not swap");
	wr.wr.atomic.compare_add = 1;
	wr.wr.atomic.swap = 2;
	post(a, wr, 8, "compare-and-swap with another expected value");
	check(word[0] == 0xfedcba9876543210, "compare-and-swap swapped although the values differ");
}

static const enum ibv_wr_opcode OPCODES[] = {
	IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
};

// Runs operations `first` to `last`, each with all message lengths.
static void messages(struct side *a, struct side *b, int first, int last, unsigned flags) {
	static const uint32_t lengths[] = {0, 1, 2, 3, 4, 64, 1024, 1025, 3000};
	for (int n = first; n <= last; n++)
		for (unsigned at = 0; at < sizeof lengths / sizeof *lengths; at++) {
			uint32_t bytes = lengths[at];
			for (uint32_t i = 0; i < bytes; i++)
				a->memory[i] = bytes + 7 * i;
			struct ibv_sge sge = {(uintptr_t)b->memory + 32768, 8192, b->mr->lkey};
			struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad;
			check(OPCODES[n] == IBV_WR_RDMA_WRITE || !ibv_post_recv(b->qp, &receive, &bad), "ibv_post_recv");
			struct ibv_send_wr wr = {.opcode = OPCODES[n], .imm_data = htonl(IMM), .send_flags = flags};
			wr.wr.rdma.rkey = b->mr->rkey;
			wr.wr.rdma.remote_addr = (uintptr_t)b->memory;
			post(a, wr, bytes, "an operation fails");
			if (OPCODES[n] != IBV_WR_RDMA_WRITE)
				wait_for(b->inbox, "nothing came");
			else
				usleep(20000);
		}
}

// Writes the packets that were captured so far.
static void save(int wire, const char *name) {
	static uint8_t frame[SNAP];
	FILE *file = fopen(name, "wb");
	uint32_t head[6] = {0xa1b2c3d4, 4 << 16 | 2, 0, 0, SNAP, 1}, count = 0;
	check(file && fwrite(head, sizeof head, 1, file) == 1, "cannot write");
	for (;;) {
		ssize_t bytes = recv(wire, frame, sizeof frame, MSG_DONTWAIT);
		if (bytes < 0)
			break;
		if (bytes < 42 || frame[12] != 8 || frame[13] != 0 || frame[36] != 0x12 || frame[37] != 0xb7)
			continue;
		uint32_t record[4] = {0, count++, bytes, bytes};
		check(fwrite(record, sizeof record, 1, file) == 1 && fwrite(frame, bytes, 1, file) == 1, "cannot write");
	}
	check(!fclose(file) && count > 0, "nothing was captured");
	printf("%s: %u packets\n", name, count);
}

int main(int count, char **arguments) {
	check(count == 6, "usage: golden DEVICE_A DEVICE_B INTERFACE atomic|sendimm|uc FILE");
	int atomic = !strcmp(arguments[4], "atomic"), reliable = strcmp(arguments[4], "uc"), room = 8 << 20;
	int wire = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
	struct sockaddr_ll place = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	place.sll_ifindex = if_nametoindex(arguments[3]);
	check(wire >= 0 && !bind(wire, (void *)&place, sizeof place), "cannot listen on the interface");
	setsockopt(wire, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
	enum ibv_qp_type type = reliable ? IBV_QPT_RC : IBV_QPT_UC;
	struct side a = open_side(arguments[1], type), b = open_side(arguments[2], type);
	connect_side(&a, &b, PSN_A, PSN_B, reliable);
	connect_side(&b, &a, PSN_B, PSN_A, reliable);
	if (atomic)
		atomics(&a, &b);
	else if (reliable)
		messages(&a, &b, 1, 1, IBV_SEND_SOLICITED);
	else
		messages(&a, &b, 0, 3, 0);
	usleep(50000);
	save(wire, arguments[5]);
	return 0;
}
