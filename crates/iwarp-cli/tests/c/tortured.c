/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends messages to itself over two queue pairs, rightly or with the bug that the first argument
 * names. A right run gives up with status 1 where the device refuses something. */
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGES = 24, SIZE = 64, DEPTH = 8 };

static const char *bug = "none";
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
	if (!channel)
		give_up("ibv_create_comp_channel");
	cq = ibv_create_cq(context, 4 * DEPTH, NULL, channel, 0);
	if (!cq)
		give_up("ibv_create_cq");
	buf = calloc(2, SIZE);
	mr = ibv_reg_mr(pd, buf, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		free(buf);
		/* The second time is the planted bug: an error path that frees what is free. */
		if (has("double_free"))
			free(buf);
		give_up("ibv_reg_mr");
	}
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
			.cap = { DEPTH, DEPTH, 1, 1, 0 },
		};

		qps[i] = ibv_create_qp(pd, &init);
		/* The planted bug: the result is used unseen. */
		if (!qps[i] && !has("unseen_null"))
			give_up("ibv_create_qp");
	}
}

static void step(struct ibv_qp *qp, struct ibv_qp *peer, enum ibv_qp_state state)
{
	union ibv_gid gid;
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
		.max_rd_atomic = 1, .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .timeout = 14,
		.retry_cnt = 7, .rnr_retry = 7,
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
	if (ibv_modify_qp(qp, &attr, mask))
		give_up("ibv_modify_qp");
}

static void check(const struct ibv_wc *wc)
{
	/* The planted bug: a completion with an error counts like any other. */
	if (wc->status != IBV_WC_SUCCESS && !has("unseen_status"))
		give_up(ibv_wc_status_str(wc->status));
}

/* Looks for a completion for some time, as programs do before they sleep. */
static bool spin(double seconds)
{
	double end = now() + seconds;
	struct ibv_wc wc;

	do {
		if (ibv_poll_cq(cq, 1, &wc) == 1) {
			check(&wc);
			return true;
		}
	} while (now() < end);
	return false;
}

/* Takes so many completions, and sleeps until there are some. */
static void take(int count)
{
	while (count > 0) {
		struct ibv_cq *event_cq;
		void *event_context;

		if (spin(0.05)) {
			count--;
			continue;
		}
		/* The planted bug: it takes for granted that they come at once. */
		if (has("impatient"))
			abort();
		/* Other work. */
		usleep(300000);
		if (ibv_req_notify_cq(cq, 0))
			give_up("ibv_req_notify_cq");
		/* The planted bug: what has come in between raises no event, and is not looked for. */
		if (!has("lost_wakeup") && spin(0)) {
			count--;
			continue;
		}
		if (ibv_get_cq_event(channel, &event_cq, &event_context))
			give_up("ibv_get_cq_event");
		ibv_ack_cq_events(event_cq, 1);
	}
}

static int post(struct ibv_qp *qp, bool receives)
{
	struct ibv_sge sge = { (uintptr_t)buf + (receives ? SIZE : 0), SIZE, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad_receive;

	return receives ? ibv_post_recv(qp, &receive, &bad_receive) : ibv_post_send(qp, &wr, &bad);
}

/* The second of six Sends fails on purpose: all twelve requests end, each once, the Send with the
 * status that was asked for, those behind it flushed, and both queue pairs are in error. */
static int books(void)
{
	enum { COUNT = 6 };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int ended[2] = { 0, 0 }, succeeded = 0, chosen = 0;
	double end = now() + 20;
	struct ibv_wc wc;

	for (int i = 0; i < COUNT; i++)
		if (post(qps[1], true))
			return 1;
	for (int i = 0; i < COUNT; i++)
		if (post(qps[0], false))
			return 2;
	while (ended[0] + ended[1] < 2 * COUNT) {
		if (now() > end)
			return 3;
		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		bool sent = wc.qp_num == qps[0]->qp_num;

		ended[!sent]++;
		if (!sent)
			continue;
		succeeded += wc.status == IBV_WC_SUCCESS;
		chosen += wc.status == IBV_WC_RNR_RETRY_EXC_ERR;
		if (ended[0] == 2 && wc.status != IBV_WC_RNR_RETRY_EXC_ERR)
			return 4;
		if (ended[0] > 2 && wc.status != IBV_WC_WR_FLUSH_ERR)
			return 5;
	}
	if (succeeded != 1 || chosen != 1 || ended[0] != COUNT)
		return 6;
	if (ibv_poll_cq(cq, 1, &wc) != 0)
		return 7;
	for (int i = 0; i < 2; i++)
		do {
			if (now() > end || ibv_query_qp(qps[i], &attr, IBV_QP_STATE, &init))
				return 8;
		} while (attr.qp_state != IBV_QPS_ERR);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		bug = argv[1];
	open_all();
	if (has("forked")) {
		int status;

		if (fork() == 0) {
			open_all();
			exit(0);
		}
		return wait(&status) < 0 || !WIFEXITED(status) ? 9 : WEXITSTATUS(status);
	}
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		for (int i = 0; i < 2; i++)
			step(qps[i], qps[1 - i], state);
	if (has("books"))
		return books();
	for (int i = 0; i < MESSAGES; i++) {
		memset(buf, 'a' + i, SIZE);
		if (post(qps[1], true))
			give_up("ibv_post_recv");
		/* The planted bug: a request that was refused is waited for. */
		if (post(qps[0], false) && !has("unseen_post"))
			give_up("ibv_post_send");
		take(2);
		if (memcmp(buf, buf + SIZE, SIZE) != 0)
			abort();
	}
	return 0;
}
