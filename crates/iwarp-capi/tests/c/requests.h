/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One request at a time between the two of pair.h, and what becomes of it. */
#include "pair.h"

/* Posts one from the first to the second, of what `sge` says to what lies at `addr` under `rkey`. */
static void post(enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
}

/* Nothing comes back for a Write by the first device's rules, so a Read behind it says that it has
 * arrived. */
static void done(enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t addr, uint32_t rkey)
{
	post(opcode, sge, addr, rkey);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	if (opcode == IBV_WR_RDMA_WRITE) {
		post(IBV_WR_RDMA_READ, part(&a, SIZE - 8, 8), (uintptr_t)b.buf + SIZE - 8,
		     b.mr->rkey);
		CHECK(take(&a).status == IBV_WC_SUCCESS);
	}
}

/* The connection ends by it: who was asked is told by an event, who asks by one or by its request. */
static void denied(enum ibv_wr_opcode opcode, struct ibv_sge sge, uint64_t addr, uint32_t rkey)
{
	struct pollfd ready = { context->async_fd, POLLIN };
	struct ibv_async_event event;

	post(opcode, sge, addr, rkey);
	for (int seen = 0; !(seen & 1);) {
		CHECK(poll(&ready, 1, 20000) == 1);
		CHECK(ibv_get_async_event(context, &event) == 0);
		CHECK(event.event_type == IBV_EVENT_QP_FATAL ||
		      event.event_type == IBV_EVENT_QP_REQ_ERR ||
		      event.event_type == IBV_EVENT_QP_ACCESS_ERR);
		seen |= event.element.qp == b.qp ? 1 : 2;
		ibv_ack_async_event(&event);
	}
	while (ibv_query_qp(a.qp, &(struct ibv_qp_attr){}, 0, &(struct ibv_qp_init_attr){}) == 0 &&
	       a.qp->state != IBV_QPS_ERR)
		usleep(1000);
	unmake(&a);
	unmake(&b);
	meet();
}
