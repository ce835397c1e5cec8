// One reliable queue pair on libibverbs for examples/beside_kernel, which loads this library at run time. Each function
// returns NULL or an error message.
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { GID_INDEX = 1, DEPTH = 128, INLINE = 64 };

// The parameters of a queue pair and its memory, which the other side needs.
struct told {
	uint64_t va;
	uint32_t number, psn, rkey;
	uint8_t gid[16];
};

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct told there;
};

const char *side_open(const char *device, uint64_t bytes, struct side **out, struct told *told) {
	struct side *side = calloc(1, sizeof *side);
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;
	for (int n = 0; n < count; n++)
		if (!strcmp(ibv_get_device_name(list[n]), device))
			context = ibv_open_device(list[n]);
	if (!context)
		return "there is no such device";
	struct ibv_pd *pd = ibv_alloc_pd(context);
	side->cq = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
	side->memory = aligned_alloc(4096, bytes);
	if (!pd || !side->cq || !side->memory)
		return "cannot create a protection domain, a completion queue and memory";
	memset(side->memory, 0, bytes);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	side->mr = ibv_reg_mr(pd, side->memory, bytes, rights);
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq, .recv_cq = side->cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE},
	};
	side->qp = ibv_create_qp(pd, &init);
	if (!side->mr || !side->qp)
		return "cannot register memory or create a queue pair";
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};
	if (ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return "cannot initialise the queue pair";
	union ibv_gid gid;
	if (ibv_query_gid(context, 1, GID_INDEX, &gid))
		return "the device has no IPv4 address";
	*told = (struct told){
		.va = (uintptr_t)side->memory, .number = side->qp->qp_num, .psn = 0x123456, .rkey = side->mr->rkey,
	};
	memcpy(told->gid, gid.raw, sizeof told->gid);
	*out = side;
	return NULL;
}

const char *side_connect(struct side *side, const struct told *there) {
	side->there = *there;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = there->number, .rq_psn = there->psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .sgid_index = GID_INDEX}},
	};
	memcpy(rtr.ah_attr.grh.dgid.raw, there->gid, sizeof there->gid);
	if (ibv_modify_qp(side->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return "the queue pair cannot enter RTR (is the interface's MTU above 4200?)";
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 0x123456, .max_rd_atomic = 1,
	};
	if (ibv_modify_qp(side->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		return "the queue pair cannot enter RTS";
	return NULL;
}

void *side_memory(struct side *side) { return side->memory; }

// Posts a WRITE, inline if it has at most INLINE bytes.
const char *side_write(struct side *side, uint64_t from, uint64_t to, uint32_t bytes, int signalled) {
	struct ibv_sge sge = {(uintptr_t)side->memory + from, bytes, side->mr->lkey};
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
	wr.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) | (bytes <= INLINE ? IBV_SEND_INLINE : 0);
	wr.wr.rdma.rkey = side->there.rkey;
	wr.wr.rdma.remote_addr = side->there.va + to;
	return ibv_post_send(side->qp, &wr, &bad) ? "the WRITE was refused" : NULL;
}

// Adds the number of completions to `done`.
const char *side_poll(struct side *side, uint64_t *done) {
	struct ibv_wc wc[16];
	int count = ibv_poll_cq(side->cq, 16, wc);
	if (count < 0)
		return "cannot poll";
	for (int n = 0; n < count; n++)
		if (wc[n].status != IBV_WC_SUCCESS)
			return ibv_wc_status_str(wc[n].status);
	*done += count;
	return NULL;
}
