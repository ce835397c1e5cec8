// The other side of tests/real_peer.rs: libibverbs on the kernel's Soft-RoCE. Runs in the guest; run.sh builds it.
//
// Usage: verbs DEVICE GID_INDEX PORT. Waits for one connection. Exchanges queue pairs with the other side like
// ibv_rc_pingpong, and then memory as RKEY:VA. First the other side accesses this memory and sends "check"; then this
// side accesses the other's memory. Answers "ok" or an error message.
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

enum { LINE = 52, MEMORY_LINE = 26, BYTES = 65536, HALF = 32768, ATOMICS = 16384 };

static int peer = -1;

static void say_and_exit(const char *format, ...) {
	char text[256];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	fprintf(stderr, "verbs: %s\n", text);
	if (peer >= 0 && write(peer, text, strlen(text)) < 0)
		perror("write");
	exit(1);
}

static void check(int good, const char *what) {
	if (!good)
		say_and_exit("%s", what);
}

static void take(void *to, size_t bytes) {
	for (size_t done = 0; done < bytes;) {
		ssize_t got = read(peer, (char *)to + done, bytes - done);
		check(got > 0, "the other side has closed the connection");
		done += got;
	}
}

static uint8_t pattern(uint32_t length, uint32_t i) { return (uint8_t)(length + 7 * i); }

static struct ibv_wc wait_for(struct ibv_cq *cq, const char *what) {
	struct ibv_wc wc;
	for (long n = 0; n < 20000000; n++) {
		int got = ibv_poll_cq(cq, 1, &wc);
		check(got >= 0, "ibv_poll_cq");
		if (got == 1) {
			if (wc.status != IBV_WC_SUCCESS)
				say_and_exit("%s: %s", what, ibv_wc_status_str(wc.status));
			return wc;
		}
		if (n % 64 == 63)
			usleep(50);
	}
	say_and_exit("%s: nothing came", what);
	return wc;
}

static void post(struct ibv_qp *qp, struct ibv_send_wr wr, struct ibv_cq *cq, const char *what) {
	struct ibv_send_wr *bad;
	wr.send_flags = IBV_SEND_SIGNALED;
	check(!ibv_post_send(qp, &wr, &bad), what);
	wait_for(cq, what);
}

int main(int count, char **arguments) {
	check(count == 4, "usage: verbs DEVICE GID_INDEX PORT");
	int devices, index = atoi(arguments[2]);
	struct ibv_device **list = ibv_get_device_list(&devices);
	struct ibv_context *context = NULL;
	for (int n = 0; n < devices; n++)
		if (!strcmp(ibv_get_device_name(list[n]), arguments[1]))
			context = ibv_open_device(list[n]);
	check(context != NULL, "no such device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0), *inbox = ibv_create_cq(context, 64, NULL, NULL, 0);
	uint8_t *memory = aligned_alloc(4096, BYTES), *local = aligned_alloc(4096, BYTES);
	memset(memory, 0, BYTES);
	for (uint32_t i = HALF; i < BYTES; i++)
		memory[i] = (uint8_t)(i * 13 + 7);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, rights);
	struct ibv_mr *own = ibv_reg_mr(pd, local, BYTES, IBV_ACCESS_LOCAL_WRITE);
	check(mr && own && cq && inbox, "cannot create the verbs objects");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = inbox, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	check(qp != NULL, "ibv_create_qp");
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};
	check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "init");
	for (uint64_t n = 0; n < 8; n++) {
		struct ibv_sge sge = {(uintptr_t)local + n * 4096, 4096, own->lkey};
		struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;
		check(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
	}
	union ibv_gid gid;
	check(!ibv_query_gid(context, 1, index, &gid), "ibv_query_gid");

	int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[3]))};
	check(!bind(listener, (void *)&any, sizeof any) && !listen(listener, 1), "cannot listen");
	peer = accept(listener, NULL, NULL);
	check(peer >= 0, "accept");

	char line[LINE], digits[33];
	take(line, LINE);
	unsigned lid, number, psn;
	check(sscanf(line, "%x:%x:%x:%32s", &lid, &number, &psn, digits) == 4, "the other side sent no queue pair");
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number, .rq_psn = psn,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .sgid_index = index}},
	};
	for (int n = 0; n < 16; n++) {
		unsigned byte;
		sscanf(digits + 2 * n, "%2x", &byte);
		rtr.ah_attr.grh.dgid.raw[n] = byte;
	}
	check(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "ready to receive");
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 0xfffffa, .max_rd_atomic = 4,
	};
	check(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "ready to send");
	int at = snprintf(line, LINE, "%04x:%06x:%06x:", 0, qp->qp_num, 0xfffffa);
	for (int n = 0; n < 16; n++)
		at += snprintf(line + at, LINE - at, "%02x", gid.raw[n]);
	check(write(peer, line, LINE) == LINE, "write");
	take(line, 5);
	snprintf(line, MEMORY_LINE, "%08x:%016llx", mr->rkey, (unsigned long long)(uintptr_t)memory);
	check(write(peer, line, MEMORY_LINE) == MEMORY_LINE, "write");
	take(line, MEMORY_LINE);
	unsigned rkey;
	unsigned long long va;
	check(sscanf(line, "%x:%llx", &rkey, &va) == 2, "the other side sent no memory");

	// Check the data that the other side has written here.
	take(line, 6);
	for (uint32_t i = 0; i < 3000; i++)
		if (memory[i] != pattern(3000, i))
			say_and_exit("WRITE: byte %u is %u", i, memory[i]);
	check(memory[3000] == 0, "WRITE: too long");
	for (uint32_t i = 0; i < 8192; i++)
		if (memory[4096 + i] != pattern(8192, i))
			say_and_exit("WRITE_IMM: byte %u is %u", i, memory[4096 + i]);
	struct ibv_wc wc = wait_for(inbox, "WRITE_IMM");
	check(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && ntohl(wc.imm_data) == 0xdeadbeef && wc.byte_len == 8192,
			"WRITE_IMM: another completion");
	wc = wait_for(inbox, "SEND");
	check(wc.opcode == IBV_WC_RECV && ntohl(wc.imm_data) == 77 && wc.byte_len == 1500, "SEND: another completion");
	for (uint32_t i = 0; i < 1500; i++)
		if (local[wc.wr_id * 4096 + i] != pattern(1500, i))
			say_and_exit("SEND: byte %u", i);
	uint64_t *words = (uint64_t *)(memory + ATOMICS);
	if (words[0] != 12 || words[1] != 0x1122334455667788)
		say_and_exit("atomics: %llx %llx", (unsigned long long)words[0], (unsigned long long)words[1]);

	// Do the same in the other direction.
	for (uint32_t i = 0; i < 5000; i++)
		local[HALF + i] = pattern(5000, i);
	struct ibv_sge sge = {(uintptr_t)local + HALF, 5000, own->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
	wr.wr.rdma.rkey = rkey;
	wr.wr.rdma.remote_addr = va + 1;
	post(qp, wr, cq, "our WRITE");
	sge.addr = (uintptr_t)local + HALF + 8192;
	wr.opcode = IBV_WR_RDMA_READ;
	post(qp, wr, cq, "our READ");
	check(!memcmp(local + HALF, local + HALF + 8192, 5000), "our READ returned wrong data");
	sge = (struct ibv_sge){(uintptr_t)local + HALF + 16384, 8, own->lkey};
	wr = (struct ibv_send_wr){.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1};
	wr.wr.atomic.rkey = rkey;
	wr.wr.atomic.remote_addr = va + ATOMICS;
	wr.wr.atomic.compare_add = 40;
	post(qp, wr, cq, "our fetch-and-add");
	wr.wr.atomic.compare_add = 2;
	post(qp, wr, cq, "our second fetch-and-add");
	check(*(uint64_t *)sge.addr == 40, "fetch-and-add returned another value");
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.remote_addr = va + ATOMICS + 8;
	wr.wr.atomic.compare_add = 0;
	wr.wr.atomic.swap = 99;
	post(qp, wr, cq, "our compare-and-swap");
	sge = (struct ibv_sge){(uintptr_t)local + HALF, 2500, own->lkey};
	wr = (struct ibv_send_wr){.opcode = IBV_WR_SEND_WITH_IMM, .sg_list = &sge, .num_sge = 1, .imm_data = htonl(55)};
	post(qp, wr, cq, "our SEND");
	check(write(peer, "ok", 2) == 2, "write");
	// The other side closes the connection after its checks.
	if (read(peer, line, 1) != 0)
		return 1;
	return 0;
}
