/* A datagram queue pair, as far as it goes. */
#include "pair.h"

int main(void)
{
	struct ibv_qp_init_attr init = {
		.cap = { 2, 2, 1, 1, 0 }, .qp_type = IBV_QPT_UD,
	}, told;
	struct ibv_qp_attr attr, to_init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
	struct ibv_sge sge = { 0 };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	struct ibv_device_attr about;

	open_context();
	CHECK(ibv_query_device(context, &about) == 0);
	init.send_cq = init.recv_cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(init.send_cq);
	struct ibv_qp *one = ibv_create_qp(pd, &init);
	if (context->device->transport_type == IBV_TRANSPORT_IWARP) {
		CHECK(!one && errno == EOPNOTSUPP);
		/* What the processors' own instructions see as well. */
		CHECK(about.atomic_cap == IBV_ATOMIC_GLOB);
		CHECK(ibv_destroy_cq(init.send_cq) == 0);
		close_context();
		return 0;
	}
	CHECK(about.atomic_cap == IBV_ATOMIC_HCA);
	struct ibv_qp *other = ibv_create_qp(pd, &init);
	CHECK(one && other && one->qp_num && one->qp_num != other->qp_num);
	CHECK(one->qp_type == IBV_QPT_UD && one->state == IBV_QPS_RESET);
	CHECK(ibv_query_qp(one, &attr, IBV_QP_STATE, &told) == 0);
	CHECK(attr.qp_state == IBV_QPS_RESET && told.qp_type == IBV_QPT_UD);
	CHECK(ibv_modify_qp(one, &to_init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_QKEY) == EOPNOTSUPP);
	CHECK(one->state == IBV_QPS_RESET);
	CHECK(ibv_post_send(one, &send, &bad_send) == EINVAL && bad_send == &send);
	CHECK(ibv_post_recv(one, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0);
	CHECK(ibv_destroy_cq(init.send_cq) == 0);
	close_context();
	return 0;
}
