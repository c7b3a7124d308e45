/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The usual mistakes, each with the number it ends with. The line that is said of each goes to
 * standard error behind a line "-- name". */
#include <rdma/rdma_cma.h>
#include "pair.h"

static struct ibv_cq *cq;

/* Announces a mistake; `errno` has to be `number` after the expression, which has to be true. */
#define MISTAKE(name, number, what)                                            \
	do {                                                                   \
		fprintf(stderr, "-- %s\n", name);                              \
		errno = 0;                                                     \
		CHECK(what);                                                   \
		CHECK(errno == (number));                                      \
	} while (0)

static struct ibv_qp *queue_pair(enum ibv_qp_type type, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = type,
	};

	return ibv_create_qp(pd, &init);
}

static int post(struct ibv_qp *qp, struct ibv_sge *list, int count, unsigned flags, int opcode)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = 7, .sg_list = list, .num_sge = count, .opcode = opcode,
		.send_flags = flags,
	};

	return ibv_post_send(qp, &wr, &bad);
}

static int modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	return ibv_modify_qp(qp, &attr, mask);
}

static void making(void)
{
	static char memory[64];
	struct ibv_srq_init_attr none = { .attr = { .max_wr = 0, .max_sge = 1 } };
	struct ibv_port_attr port;
	struct ibv_qp_cap plain = { 4, 4, 1, 1, 0 };

	MISTAKE("cqe", EINVAL, !ibv_create_cq(context, 0, NULL, NULL, 0));
	MISTAKE("vector", EINVAL, !ibv_create_cq(context, 4, NULL, NULL, 12345));
	MISTAKE("port", EINVAL, ibv_query_port(context, 7, &port));
	MISTAKE("send depth", EINVAL,
		!queue_pair(IBV_QPT_RC, (struct ibv_qp_cap){ 1 << 30, 4, 1, 1, 0 }));
	MISTAKE("elements of a queue", EINVAL,
		!queue_pair(IBV_QPT_RC, (struct ibv_qp_cap){ 4, 4, 1, 4000, 0 }));
	MISTAKE("type", EOPNOTSUPP, !queue_pair(IBV_QPT_RAW_PACKET, plain));
	MISTAKE("vendor's type", EOPNOTSUPP, !queue_pair(IBV_QPT_DRIVER, plain));
	MISTAKE("rights", EINVAL, !ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE));
	MISTAKE("unknown rights", EINVAL, !ibv_reg_mr(pd, memory, 64, 1u << 31));
	MISTAKE("memory", EFAULT, !ibv_reg_mr(pd, (void *)64, 64, IBV_ACCESS_LOCAL_WRITE));
	MISTAKE("srq", EINVAL, !ibv_create_srq(pd, &none));
	MISTAKE("notify", EINVAL, ibv_req_notify_cq(cq, 0));
}

static void steps(void)
{
	struct ibv_qp *qp = queue_pair(IBV_QPT_RC, (struct ibv_qp_cap){ 4, 4, 1, 1, 0 });
	struct ibv_sge sge = { 0 };
	const int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	const int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024, .dest_qp_num = 77, .max_dest_rd_atomic = 1,
		.port_num = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } },
	};

	CHECK(qp);
	attr.qp_state = IBV_QPS_RTS;
	MISTAKE("no step", EINVAL, modify(qp, attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_INIT;
	MISTAKE("missing", EINVAL, modify(qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX));
	attr.port_num = 2;
	MISTAKE("other port", EINVAL, modify(qp, attr, IBV_QP_STATE | init));
	attr.port_num = 1;
	CHECK(modify(qp, attr, IBV_QP_STATE | init) == 0);
	MISTAKE("too early", EINVAL, post(qp, &sge, 0, 0, IBV_WR_SEND));
	attr.qp_state = IBV_QPS_RTR;
	MISTAKE("missing of RTR", EINVAL, modify(qp, attr, IBV_QP_STATE | (rtr & ~IBV_QP_RQ_PSN)));
	attr.ah_attr.grh.sgid_index = 30;
	MISTAKE("GID", EINVAL, modify(qp, attr, IBV_QP_STATE | rtr));
	MISTAKE("mask", EINVAL, modify(qp, attr, 1 << 30));
	CHECK(ibv_destroy_qp(qp) == 0);
	MISTAKE("GID of a handle", EINVAL, !ibv_create_ah(pd, &attr.ah_attr));
}

static void posting(void)
{
	struct ibv_recv_wr receive = { .num_sge = 9 }, *bad;
	struct ibv_sge many[9] = { { .addr = (uintptr_t)a.buf, .length = 1, .lkey = a.mr->lkey } };

	receive.sg_list = many;
	for (int i = 1; i < 9; i++)
		many[i] = many[0];
	MISTAKE("elements", EINVAL, post(a.qp, many, 9, 0, IBV_WR_SEND));
	MISTAKE("elements of a receive", EINVAL, ibv_post_recv(a.qp, &receive, &bad));
	/* More than anybody wants to read. */
	for (int i = 0; i < 1000; i++)
		CHECK(post(a.qp, many, 9, 0, IBV_WR_SEND) == EINVAL);
	many[0].length = 4000;
	MISTAKE("inline", EINVAL, post(a.qp, many, 1, IBV_SEND_INLINE, IBV_WR_SEND));
	MISTAKE("operation", EOPNOTSUPP, post(a.qp, many, 0, 0, 77));
	int posted = 0;
	while (post(a.qp, NULL, 0, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE) == 0)
		posted++;
	CHECK(posted == DEPTH && errno == ENOMEM);
	fprintf(stderr, "-- full again\n");
	CHECK(post(a.qp, NULL, 0, IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE) == ENOMEM);
}

static void connecting(void)
{
	struct rdma_cm_id *id;
	struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1 };
	struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1 }, .qp_type = IBV_QPT_RC };

	MISTAKE("port space", EPROTONOSUPPORT, rdma_create_id(NULL, &id, NULL, 0x7777) == -1);
	CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0);
	MISTAKE("unresolved", EINVAL, rdma_create_qp(id, NULL, &init) == -1);
	MISTAKE("no request", EINVAL, rdma_accept(id, &param) == -1);
	MISTAKE("address", EINVAL, rdma_bind_addr(id, &(struct sockaddr){ .sa_family = 99 }) == -1);
	CHECK(rdma_destroy_id(id) == 0);
}

static void in_use(void)
{
	MISTAKE("completion queue in use", EBUSY, ibv_destroy_cq(a.cq));
	MISTAKE("channel in use", EBUSY, ibv_destroy_comp_channel(channel));
	MISTAKE("domain in use", EBUSY, ibv_dealloc_pd(pd));
}

int main(void)
{
	open_context();
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq);
	making();
	steps();
	meet();
	posting();
	connecting();
	in_use();
	return 0;
}
