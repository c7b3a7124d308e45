/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The features that the device lacks, as programs probe it: by masks and limits, and by trying. */
#include "pair.h"

static void null(const void *object)
{
	CHECK(!object && errno == EOPNOTSUPP);
	errno = 0;
}

static struct ibv_qp *new_qp(enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = a.cq,
		.recv_cq = a.cq,
		.cap = { 4, 4, 1, 1, 0 },
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = pd,
		.send_ops_flags = ops,
	};

	return ibv_create_qp_ex(context, &init);
}

static struct ibv_srq *new_srq(enum ibv_srq_type type)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = type,
		.pd = pd,
	};

	return ibv_create_srq_ex(context, &init);
}

static void masks(void)
{
	struct ibv_device_attr_ex attr;

	CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
	CHECK(!(attr.orig_attr.device_cap_flags & (IBV_DEVICE_XRC | IBV_DEVICE_RAW_MULTI)));
	CHECK(!(attr.orig_attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING));
	CHECK(attr.orig_attr.max_raw_ethy_qp == 0 && attr.max_wq_type_rq == 0);
	CHECK(attr.rss_caps.supported_qpts == 0 && attr.tso_caps.supported_qpts == 0);
	CHECK(attr.tm_caps.max_num_tags == 0 && attr.packet_pacing_caps.supported_qpts == 0);
	CHECK(attr.xrc_odp_caps == 0 && attr.raw_packet_caps == 0);
}

int main(void)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0,
	};
	struct ibv_counters_init_attr counters = { 0 };
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ };
	struct ibv_rwq_ind_table_init_attr table = { 0 };
	struct ibv_flow_attr flow = { 0 };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_qp_rate_limit_attr rate = { 0 };
	struct ibv_ece ece = { .vendor_id = 0x1234 };
	struct ibv_srq *srq;
	uint32_t number;

	open_context();
	meet();
	masks();
	errno = 0;
	null(ibv_open_xrcd(context, &xrcd));
	null(new_qp(IBV_QPT_XRC_SEND, 0));
	null(new_qp(IBV_QPT_XRC_RECV, 0));
	null(new_qp(IBV_QPT_RAW_PACKET, 0));
	null(new_qp(IBV_QPT_DRIVER, 0));
	null(new_qp(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_WRITE));
	/* Flush, which newer headers name. */
	null(new_qp(IBV_QPT_RC, 1 << 11));
	null(new_qp(IBV_QPT_RC, IBV_QP_EX_WITH_TSO));
	null(new_srq(IBV_SRQT_XRC));
	null(new_srq(IBV_SRQT_TM));
	null(ibv_create_wq(context, &wq));
	null(ibv_create_rwq_ind_table(context, &table));
	null(ibv_create_flow(a.qp, &flow));
	null(ibv_create_flow_action_esp(context, &esp));
	null(ibv_create_counters(context, &counters));
	null(ibv_alloc_null_mr(pd));
	CHECK(ibv_modify_qp_rate_limit(a.qp, &rate) == EOPNOTSUPP);
	CHECK(ibv_set_ece(a.qp, &ece) == EOPNOTSUPP && ibv_query_ece(a.qp, &ece) == EOPNOTSUPP);
	srq = new_srq(IBV_SRQT_BASIC);
	CHECK(srq && ibv_get_srq_num(srq, &number) == EOPNOTSUPP);
	CHECK(ibv_destroy_srq(srq) == 0);
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
