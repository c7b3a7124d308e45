/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls whose arguments make no sense, and those at the limit. */
#include "misuse.h"

static struct ibv_sge sges[8];

static int post_list(int count, unsigned flags)
{
	struct ibv_send_wr *bad, wr = {
		.sg_list = sges, .num_sge = count, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags | IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
	};

	return ibv_post_send(a.qp, &wr, &bad);
}

static void begin(uint32_t length)
{
	start();
	for (int i = 0; i < 8; i++)
		sges[i] = part(&a, 64 * i, length);
}

static unsigned most(int elements)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init) == 0);
	return elements ? init.cap.max_send_sge : init.cap.max_inline_data;
}

static void elements_wrong(void)
{
	begin(8);
	CHECK(most(1) < 8);
	/* elements_wrong says: ibv_post_send: 8 scatter/gather elements */
	CHECK(post_list(8, 0) == EINVAL); /* elements_wrong: here */
	end();
}

static void inline_wrong(void)
{
	begin(SIZE);
	/* inline_wrong says: bytes of inline data */
	CHECK(post_list(1, IBV_SEND_INLINE) == EINVAL); /* inline_wrong: here */
	end();
}

static void address_wrong(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 200 } },
	};

	open_context();
	make(&a, NULL);
	make(&b, NULL);
	step(a.qp, b.qp, IBV_QPS_INIT);
	attr.dest_qp_num = b.qp->qp_num;
	/* address_wrong says: ibv_modify_qp: */
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | /* address_wrong: here */
		IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
		IBV_QP_MIN_RNR_TIMER));
	end();
}

static void limits_right(void)
{
	begin(8);
	CHECK(post_list(most(1), 0) == 0);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	sges[0].length = most(0);
	CHECK(post_list(1, IBV_SEND_INLINE) == 0);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	end();
}

/* Programs find out in this way how much there may be. */
static void asked_right(void)
{
	struct ibv_device_attr attr;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };

	start();
	CHECK(ibv_query_device(context, &attr) == 0);
	init.send_cq = init.recv_cq = a.cq;
	init.cap.max_send_wr = attr.max_qp_wr + 1;
	CHECK(!ibv_create_qp(pd, &init));
	end();
}

MAIN({ "elements_wrong", elements_wrong }, { "inline_wrong", inline_wrong },
     { "address_wrong", address_wrong }, { "limits_right", limits_right },
     { "asked_right", asked_right })
