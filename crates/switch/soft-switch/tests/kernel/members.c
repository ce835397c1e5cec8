// Hosts of a switch's set whose queue pairs are those of the kernel's Soft-RoCE: the other side of ../kernel.rs. Runs
// in the guest, is built by run.sh, and needs only libibverbs.
//
// Usage: members DEVICE GID_INDEX PORT COUNT. Creates COUNT hosts with the ranks 1 to COUNT, each with one queue pair
// that sends and one that receives. Waits for one connection and sends "SQPN SPSN RQPN RPSN RKEY VA" for each host.
// Then it reads commands from the connection and answers each with "ok" or the error:
//
//   connect GID FORWARD BACKWARD                     connects all queue pairs to the set at the switch
//   link|release|query RANK N [RANK RKEY BASE]...    sends a control packet of a rank, and waits for the acknowledgement
//   send|write|write_imm RANK VA BYTES SALT IMM      sends a message of a rank, and waits for the acknowledgement
//   holds RANK OFFSET BYTES SALT                     checks that a rank's memory holds such a message
//   took RANK BYTES SALT IMM WHOLE                   checks that a rank's next receive was such a message; WHOLE: a SEND
//   idle RANK                                        checks that no receive of a rank has completed
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 32, BYTES = 65536, RECEIVES = 16, RECEIVE = 8192, MTU = 1024, SPSN = 0xfffff0, RPSN = 0x7ffff0, LINES = 4096 };

struct host {
	struct ibv_qp *sends, *receives;
	struct ibv_cq *sent, *received;
	struct ibv_mr *memory, *local;
	uint32_t psn, messages;
};

static struct host hosts[MOST + 1];
static int count, peer = -1, gid_index;

static void answer(const char *format, ...) {
	char text[256];
	va_list list;
	va_start(list, format);
	int bytes = vsnprintf(text, sizeof text - 1, format, list);
	va_end(list);
	if (strcmp(text, "ok"))
		fprintf(stderr, "members: %s\n", text);
	text[bytes++] = '\n';
	if (write(peer, text, bytes) != bytes)
		exit(1);
}

static void no(const char *what) {
	perror(what);
	exit(1);
}

static uint8_t pattern(unsigned salt, uint32_t i) { return (uint8_t)(salt + 7 * i); }

static struct ibv_qp *make(struct ibv_pd *pd, struct ibv_cq *sent, struct ibv_cq *received) {
	struct ibv_qp_init_attr init = {
		.send_cq = sent, .recv_cq = received, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};
	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		no("queue pair");
	return qp;
}

static int post_receive(struct host *host, uint64_t n) {
	struct ibv_sge sge = {(uintptr_t)host->local->addr + n * RECEIVE, RECEIVE, host->local->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_recv(host->receives, &wr, &bad);
}

static void make_host(struct ibv_context *context, struct ibv_pd *pd, struct host *host) {
	host->sent = ibv_create_cq(context, 32, NULL, NULL, 0);
	host->received = ibv_create_cq(context, 32, NULL, NULL, 0);
	uint8_t *memory = aligned_alloc(4096, BYTES), *local = aligned_alloc(4096, RECEIVES * RECEIVE);
	memset(memory, 0, BYTES);
	host->memory = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	host->local = ibv_reg_mr(pd, local, RECEIVES * RECEIVE, IBV_ACCESS_LOCAL_WRITE);
	if (!host->sent || !host->received || !host->memory || !host->local)
		no("completion queue or region");
	host->sends = make(pd, host->sent, host->sent);
	host->receives = make(pd, host->sent, host->received);
	host->psn = SPSN;
	for (uint64_t n = 0; n < RECEIVES; n++)
		if (post_receive(host, n))
			no("receive");
}

static const char *connect_one(struct ibv_qp *qp, uint32_t to, const char *address, uint32_t expects, uint32_t begins) {
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to, .rq_psn = expects,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .sgid_index = gid_index}},
	};
	memcpy(rtr.ah_attr.grh.dgid.raw + 10, "\xff\xff", 2);
	if (inet_pton(AF_INET, address, rtr.ah_attr.grh.dgid.raw + 12) != 1)
		return "that is no address";
	if (ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return "ready to receive";
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = begins, .max_rd_atomic = 1,
	};
	if (ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC))
		return "ready to send";
	return NULL;
}

static const char *wait_for(struct ibv_cq *cq, struct ibv_wc *wc) {
	for (long n = 0; n < 400000; n++) {
		int got = ibv_poll_cq(cq, 1, wc);
		if (got < 0)
			return "ibv_poll_cq";
		if (got == 1)
			return wc->status == IBV_WC_SUCCESS ? NULL : ibv_wc_status_str(wc->status);
		usleep(50);
	}
	return "nothing came for 20 s";
}

// Posts a request and counts its packets and messages, because control packets contain both counts.
static const char *post(struct host *host, struct ibv_send_wr wr, uint32_t bytes) {
	struct ibv_sge sge = {(uintptr_t)host->memory->addr + BYTES / 2, bytes, host->memory->lkey};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (ibv_post_send(host->sends, &wr, &bad))
		return "ibv_post_send";
	host->psn = (host->psn + (bytes ? (bytes + MTU - 1) / MTU : 1)) & 0xffffff;
	host->messages++;
	return wait_for(host->sent, &wc);
}

static const char *control(struct host *host, int rank, int operation, char *list, int links) {
	uint8_t *to = (uint8_t *)host->memory->addr + BYTES / 2;
	uint32_t words[8] = {
		htobe32(0x53544e54), htobe32(1 << 24 | operation << 16 | links), htobe32(100 + rank), 0,
		htobe32(host->sends->qp_num), htobe32(host->psn), htobe32(host->messages & 0xffffff), 0,
	};
	memcpy(to, words, sizeof words);
	uint32_t bytes = sizeof words;
	for (int n = 0, used; n < links; n++, list += used, bytes += 16) {
		unsigned member, rkey;
		unsigned long long base;
		if (sscanf(list, "%u %x %llx%n", &member, &rkey, &base, &used) != 3)
			return "that is no list of members";
		uint32_t key = htobe32(rkey), first = htobe32(member << 24);
		uint64_t place = htobe64(base);
		memcpy(to + bytes, &first, 4);
		memcpy(to + bytes + 4, &key, 4);
		memcpy(to + bytes + 8, &place, 8);
	}
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {.remote_addr = ~0ull, .rkey = ~0u}};
	return post(host, wr, bytes);
}

static const char *differs(const uint8_t *bytes, uint32_t length, unsigned salt) {
	for (uint32_t i = 0; i < length; i++)
		if (bytes[i] != pattern(salt, i))
			return "other bytes";
	return NULL;
}

static const char *took(struct host *host, uint32_t bytes, unsigned salt, uint32_t imm, int whole) {
	struct ibv_wc wc;
	const char *wrong = wait_for(host->received, &wc);
	if (wrong)
		return wrong;
	if (wc.byte_len != bytes || ntohl(wc.imm_data) != imm ||
	    wc.opcode != (whole ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM))
		return "another completion";
	wrong = whole ? differs((uint8_t *)host->local->addr + wc.wr_id * RECEIVE, bytes, salt) : NULL;
	return wrong ? wrong : post_receive(host, wc.wr_id) ? "receive" : NULL;
}

static const char *obey(char *line) {
	char word[16], forward[64], backward[64];
	unsigned gid, rank, a, b, c, d;
	unsigned long long va;
	int used = 0;
	if (sscanf(line, "connect %u %63s %63s", &gid, forward, backward) == 3) {
		const char *wrong = NULL;
		for (int n = 1; n <= count && !wrong; n++) {
			wrong = connect_one(hosts[n].sends, gid << 8 | n, forward, 0, SPSN);
			if (!wrong)
				wrong = connect_one(hosts[n].receives, gid << 8 | n, backward, RPSN, 0);
		}
		return wrong;
	}
	if (sscanf(line, "%15s %u%n", word, &rank, &used) != 2 || rank < 1 || rank > (unsigned)count)
		return "what?";
	struct host *host = &hosts[rank];
	char *rest = line + used;
	const char *operations[] = {"", "link", "release", "query"};
	for (int operation = 1; operation <= 3; operation++)
		if (!strcmp(word, operations[operation]) && sscanf(rest, "%u%n", &a, &used) == 1 && a <= MOST)
			return control(host, rank, operation, rest + used, a);
	if (!strcmp(word, "holds") && sscanf(rest, "%u %u %u", &a, &b, &c) == 3 && a + b <= BYTES)
		return differs((uint8_t *)host->memory->addr + a, b, c);
	if (!strcmp(word, "took") && sscanf(rest, "%u %u %u %u", &a, &b, &c, &d) == 4)
		return took(host, a, b, c, d);
	struct ibv_wc wc;
	if (!strcmp(word, "idle"))
		return ibv_poll_cq(host->received, 1, &wc) == 0 ? NULL : "a receive has completed";
	if (sscanf(rest, "%llx %u %u %u", &va, &a, &b, &c) != 4 || a > BYTES / 2)
		return "what?";
	for (uint32_t i = 0; i < a; i++)
		((uint8_t *)host->memory->addr)[BYTES / 2 + i] = pattern(b, i);
	struct ibv_send_wr wr = {.imm_data = htonl(c), .wr.rdma = {.remote_addr = va, .rkey = 9}};
	wr.opcode = !strcmp(word, "send") ? IBV_WR_SEND_WITH_IMM : !strcmp(word, "write") ? IBV_WR_RDMA_WRITE :
			IBV_WR_RDMA_WRITE_WITH_IMM;
	return post(host, wr, a);
}

int main(int argc, char **argv) {
	if (argc != 5 || (count = atoi(argv[4])) < 1 || count > MOST - 1)
		return 2;
	gid_index = atoi(argv[2]);
	int devices = 0;
	struct ibv_device **list = ibv_get_device_list(&devices);
	struct ibv_context *context = NULL;
	for (int n = 0; n < devices; n++)
		if (!strcmp(ibv_get_device_name(list[n]), argv[1]))
			context = ibv_open_device(list[n]);
	if (!context)
		no("no such device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	for (int n = 1; n <= count; n++)
		make_host(context, pd, &hosts[n]);
	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
	if (bind(listener, (void *)&any, sizeof any) || listen(listener, 1))
		no("cannot listen");
	if ((peer = accept(listener, NULL, NULL)) < 0)
		no("accept");
	FILE *input = fdopen(peer, "r");
	char line[LINES];
	for (int n = 1; n <= count; n++)
		answer("%u %u %u %u %u %llu", hosts[n].sends->qp_num, SPSN, hosts[n].receives->qp_num, RPSN,
			hosts[n].memory->rkey, (unsigned long long)(uintptr_t)hosts[n].memory->addr);
	while (fgets(line, sizeof line, input)) {
		const char *wrong = obey(line);
		if (wrong)
			answer("%.60s: %s", line, wrong);
		else
			answer("ok");
	}
	return 0;
}
