/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two queue pairs of one process that are each other's peers. */
#include <infiniband/verbs.h>
#include <poll.h>
#include <time.h>
#include "check.h"

enum { SIZE = 1 << 16, DEPTH = 64 };

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *buf;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static union ibv_gid gid;
static struct side a, b;
/* Places of each completion queue. */
static int cq_places = 4 * DEPTH;
/* The port that both are on. */
static unsigned char port_num = 1;
/* The rights that each gives to the other. */
static int rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
/* The Reads and Atomics that the queue pairs allow themselves. */
static unsigned char max_rd_atomic = 4;
/* For Sends without a receive: 7 is without limit, and 12 is 0.64 ms. */
static unsigned char rnr_retry = 7, min_rnr_timer = 12;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void open_context(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	CHECK(context);
	ibv_free_device_list(devices);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	channel = ibv_create_comp_channel(context);
	CHECK(channel);
	CHECK(ibv_query_gid(context, port_num, 0, &gid) == 0);
}

static void make(struct side *side, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init = {
		.srq = srq,
		.cap = { DEPTH, DEPTH, 4, 4, 128 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ,
	};

	side->cq = ibv_create_cq(context, cq_places, side, channel, 0);
	CHECK(side->cq);
	init.send_cq = init.recv_cq = side->cq;
	side->qp = ibv_create_qp_ex(context, &init);
	CHECK(side->qp);
	side->buf = calloc(1, SIZE);
	side->mr = ibv_reg_mr(pd, side->buf, SIZE,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	CHECK(side->mr);
}

static void step(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = port_num,
		.qp_access_flags = rights,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.max_rd_atomic = max_rd_atomic,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = min_rnr_timer,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = rnr_retry,
		.ah_attr = { .is_global = 1, .port_num = port_num, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (state == IBV_QPS_RTR)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
	CHECK(qp->state == state);
}

static void join(void)
{
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		step(a.qp, b.qp, state);
		step(b.qp, a.qp, state);
	}
}

/* Makes both sides, and connects them. */
static void meet(void)
{
	make(&a, NULL);
	make(&b, NULL);
	join();
}

/* Takes one completion. */
static struct ibv_wc take(struct side *side)
{
	double end = now() + 20;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(side->cq, 1, &wc)) == 0)
		CHECK(now() < end);
	CHECK(n == 1);
	return wc;
}

static struct ibv_sge part(struct side *side, size_t offset, uint32_t length)
{
	return (struct ibv_sge){ (uintptr_t)side->buf + offset, length, side->mr->lkey };
}

static void receive(struct side *side, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = part(side, offset, length);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(side->qp, &wr, &bad) == 0);
}

static void unmake(struct side *side)
{
	CHECK(ibv_destroy_qp(side->qp) == 0);
	CHECK(ibv_destroy_cq(side->cq) == 0);
	CHECK(ibv_dereg_mr(side->mr) == 0);
	free(side->buf);
}

static void close_context(void)
{
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_close_device(context) == 0);
}
