/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Objects whose public part the program has written to, and other misuse that kernels tell. */
#include <stdbool.h>
#include <sys/resource.h>
#include "pair.h"

/* Calls with an object whose handle is another's, which is refused, and puts the handle right. */
#define SPOILT(object, call)                                                   \
	do {                                                                   \
		(object)->handle ^= 0xdeadbeef;                                \
		errno = 0;                                                     \
		CHECK(call);                                                   \
		CHECK(errno == ENOENT);                                        \
		(object)->handle ^= 0xdeadbeef;                                \
	} while (0)

static void handles(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = a.cq, .recv_cq = b.cq,
		.cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC,
	};
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_ah_attr way = {
		.is_global = 1, .port_num = 1, .grh = { .dgid = gid },
	};
	struct ibv_srq_attr limit = { .srq_limit = 1 };
	struct ibv_ah *ah = ibv_create_ah(pd, &way);

	CHECK(srq && mw && ah);
	SPOILT(pd, ibv_dealloc_pd(pd) == ENOENT);
	SPOILT(pd, !ibv_reg_mr(pd, a.buf, 1, 0));
	SPOILT(pd, !ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	SPOILT(pd, !ibv_create_srq(pd, &srq_init));
	SPOILT(pd, !ibv_create_qp(pd, &init));
	SPOILT(pd, !ibv_create_ah(pd, &way));
	SPOILT(a.cq, !ibv_create_qp(pd, &init));
	SPOILT(b.cq, !ibv_create_qp(pd, &init));
	SPOILT(a.cq, ibv_destroy_cq(a.cq) == ENOENT);
	SPOILT(a.cq, ibv_resize_cq(a.cq, 8) == ENOENT);
	SPOILT(a.cq, ibv_req_notify_cq(a.cq, 0) == ENOENT);
	SPOILT(a.mr, ibv_dereg_mr(a.mr) == ENOENT);
	SPOILT(mw, ibv_dealloc_mw(mw) == ENOENT);
	SPOILT(ah, ibv_destroy_ah(ah) == ENOENT);
	init.srq = srq;
	SPOILT(srq, !ibv_create_qp(pd, &init));
	SPOILT(srq, ibv_destroy_srq(srq) == ENOENT);
	SPOILT(srq, ibv_query_srq(srq, &limit) == ENOENT);
	SPOILT(srq, ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == ENOENT);
	SPOILT(a.qp, ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == ENOENT);
	SPOILT(a.qp, ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == ENOENT);
	SPOILT(a.qp, ibv_destroy_qp(a.qp) == ENOENT);
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_dealloc_mw(mw) == 0 && ibv_destroy_ah(ah) == 0);
}

/* Another context knows nothing of them. */
static void contexts(void)
{
	struct ibv_context *other = ibv_open_device(context->device);

	CHECK(other);
	pd->context = other;
	CHECK(ibv_dealloc_pd(pd) == ENOENT);
	pd->context = context;
	CHECK(ibv_close_device(other) == 0);
}

/* Nobody would see the event. */
static void notices(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);

	CHECK(cq && ibv_req_notify_cq(cq, 0) == EINVAL);
	CHECK(ibv_destroy_cq(cq) == 0);
}

/* The result tells who refuses. */
static void regions(void)
{
	int rights = IBV_REREG_MR_CHANGE_ACCESS, place = IBV_REREG_MR_CHANGE_TRANSLATION;

	CHECK(ibv_rereg_mr(a.mr, rights, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) ==
	      IBV_REREG_MR_ERR_CMD);
	CHECK(ibv_rereg_mr(a.mr, place, NULL, a.buf, 0, 0) == IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(a.mr, place, NULL, a.buf, 8, IBV_ACCESS_LOCAL_WRITE) ==
	      IBV_REREG_MR_ERR_INPUT);
	CHECK(ibv_rereg_mr(a.mr, 1 << 7, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
}

/* Of the key that is asked for, the last eight bits count. */
static void windows(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, b.buf, SIZE,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw[2];

	CHECK(mr);
	for (int i = 0; i < 2; i++) {
		mw[i] = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		CHECK(mw[i]);
		uint32_t before = mw[i]->rkey;
		struct ibv_send_wr wr = {
			.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
			.bind_mw = {
				.mw = mw[i], .rkey = 0x400ab,
				.bind_info = { mr, (uintptr_t)b.buf, 8, IBV_ACCESS_REMOTE_WRITE },
			},
		}, *bad;
		CHECK(ibv_post_send(b.qp, &wr, &bad) == 0);
		CHECK(take(&b).status == IBV_WC_SUCCESS);
		CHECK(mw[i]->rkey == ((before & ~0xffu) | 0xab));
		struct ibv_sge sge = part(&a, 0, 8);
		double end = now() + 20;
		a.buf[0] = (char)(i + 1);
		struct ibv_send_wr write = {
			.sg_list = &sge, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)b.buf, mw[i]->rkey },
		};
		CHECK(ibv_post_send(a.qp, &write, &bad) == 0);
		CHECK(take(&a).status == IBV_WC_SUCCESS);
		/* Over TCP it may still be on its way. */
		while (__atomic_load_n(b.buf, __ATOMIC_ACQUIRE) != a.buf[0])
			CHECK(now() < end);
	}
	CHECK(mw[0]->rkey != mw[1]->rkey);
	CHECK(ibv_dealloc_mw(mw[0]) == 0 && ibv_dealloc_mw(mw[1]) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* A wrong attempt does not spoil the right one. */
static void steps(void)
{
	struct side lone = { 0 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };

	make(&lone, NULL);
	step(lone.qp, lone.qp, IBV_QPS_INIT);
	CHECK(ibv_modify_qp(lone.qp, &attr, IBV_QP_STATE) == EINVAL);
	step(lone.qp, lone.qp, IBV_QPS_RTR);
	step(lone.qp, lone.qp, IBV_QPS_RTS);
	unmake(&lone);
}

/* More queues than there are descriptors for, as long as nobody waits for them and nothing comes. */
static void counts(void)
{
	enum { MANY = 20000 };
	static struct ibv_cq *many[MANY];
	struct ibv_device_attr attr;
	struct rlimit files, few;
	double begun = now();
	struct ibv_wc wc;

	CHECK(ibv_query_device(context, &attr) == 0 && attr.max_cq >= MANY);
	CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
	few = files;
	few.rlim_cur = 256;
	CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
	for (int i = 0; i < MANY; i++) {
		many[i] = ibv_create_cq(context, 16, NULL, NULL, 0);
		CHECK(many[i] && ibv_poll_cq(many[i], 1, &wc) == 0);
	}
	for (int i = 0; i < MANY; i++)
		CHECK(ibv_destroy_cq(many[i]) == 0);
	CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
	fprintf(stderr, "%d queues took %.2f s\n", MANY, now() - begun);
}

/* The end that was to be read or written learns why its connection is gone. */
static void access_error(void)
{
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)b.buf, ~b.mr->rkey },
	}, *bad;
	struct ibv_async_event event;

	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(take(&a).status == IBV_WC_REM_ACCESS_ERR);
	bool told = false;
	while (!told) {
		CHECK(ibv_get_async_event(context, &event) == 0);
		told |= event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == b.qp;
		ibv_ack_async_event(&event);
	}
	CHECK(told);
}

int main(void)
{
	open_context();
	meet();
	handles();
	contexts();
	notices();
	regions();
	windows();
	/* The peers of an RNIC are found by the connection manager, which asks for less. */
	const char *personality = getenv("IWARP_PERSONALITY");

	if (personality && !strcmp(personality, "roce"))
		steps();
	counts();
	access_error();
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
