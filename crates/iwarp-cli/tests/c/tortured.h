/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Parts that the programs with planted bugs share: two queue pairs of one process, connected to each
 * other. The first argument names the bug; a right run gives up with status 1 where the device
 * refuses something. */
#ifndef TORTURED_H
#define TORTURED_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 24, SIZE = 64, DEPTH = 32 };
enum { RECEIVE = -1 };
enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static const char *bug = "none";
/* Requests have completions only where they ask for one. */
static bool silent;
/* The number of the message, which its work requests have above their kind. */
static unsigned message;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qps[2];
static struct ibv_mr *mr;
static char *buf;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static bool has(const char *name)
{
	return strcmp(bug, name) == 0;
}

/* The end of a program that notices a fault. */
static void give_up(const char *what)
{
	fprintf(stderr, "gives up: %s\n", what);
	exit(1);
}

static void open_all(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	if (!devices || !devices[0])
		give_up("no device");
	context = ibv_open_device(devices[0]);
	ibv_free_device_list(devices);
	if (!context)
		give_up("ibv_open_device");
	pd = ibv_alloc_pd(context);
	if (!pd)
		give_up("ibv_alloc_pd");
	channel = ibv_create_comp_channel(context);
	/* The planted bug: without a channel there are no events, and the program waits for some. */
	if (!channel && !has("unseen_channel"))
		give_up("ibv_create_comp_channel");
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, channel, 0);
	if (!cq)
		give_up("ibv_create_cq");
	buf = calloc(2, SIZE);
	mr = ibv_reg_mr(pd, buf, 2 * SIZE, ACCESS);
	/* The planted bug: the result is used unseen. */
	if (!mr && !has("unseen_region")) {
		free(buf);
		/* The second time is the planted bug: an error path that frees what is free. */
		if (has("double_free"))
			free(buf);
		give_up("ibv_reg_mr");
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = !silent,
			.cap = { DEPTH, 2 * DEPTH, 1, 1, 0 },
		};

		qps[i] = ibv_create_qp(pd, &init);
		/* The planted bug: the result is used unseen. */
		if (!qps[i] && !has("unseen_null")) {
			/* The planted bug: the region is in the domain still. */
			if (has("wrong_order") && ibv_dealloc_pd(pd))
				abort();
			give_up("ibv_create_qp");
		}
	}
}

static void step(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state)
{
	union ibv_gid gid;
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
		.max_rd_atomic = 1, .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .timeout = 14,
		.retry_cnt = 7, .rnr_retry = 7, .qp_access_flags = ACCESS,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
	};
	int mask = IBV_QP_STATE;

	ibv_query_gid(context, 1, 0, &gid);
	attr.ah_attr.grh.dgid = gid;
	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	if (state == IBV_QPS_RTR)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
	/* The planted bug: the result is not looked at. */
	if (ibv_modify_qp(qp, &attr, mask) && !has("unseen_modify"))
		give_up("ibv_modify_qp");
}

static void connect_all(void)
{
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		for (int i = 0; i < 2; i++)
			step(qps[i], qps[1 - i], state);
}

static inline void begin(int argc, char **argv)
{
	if (argc > 1)
		bug = argv[1];
	open_all();
	connect_all();
}

/* Posts one work request with a completion: from the first half of the buffer, a receive and a Read
 * into the second half. */
static int post(struct ibv_qp *qp, int opcode)
{
	bool into = opcode == RECEIVE || opcode == IBV_WR_RDMA_READ;
	struct ibv_sge sge = { (uintptr_t)buf + (into ? SIZE : 0), SIZE, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = message << 8 | (uint8_t)opcode, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.wr.rdma = { (uintptr_t)buf + (into ? 0 : SIZE), mr->rkey },
	}, *bad;
	struct ibv_recv_wr receive = {
		.wr_id = message << 8 | (uint8_t)opcode, .sg_list = &sge, .num_sge = 1,
	}, *bad_receive;

	return opcode == RECEIVE ? ibv_post_recv(qp, &receive, &bad_receive) :
				   ibv_post_send(qp, &wr, &bad);
}

#endif
