/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An event is acknowledged before its queue is destroyed. */
#include "pair.h"

int main(void)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	struct ibv_cq *cq;
	void *side;

	open_context();
	make(&a, NULL);
	make(&b, NULL);
	join();
	CHECK(ibv_req_notify_cq(a.cq, 0) == 0);
	sge = part(&a, 0, 4);
	wr = (struct ibv_send_wr){
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
	};
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(ibv_get_cq_event(channel, &cq, &side) == 0 && cq == a.cq && side == &a);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	ibv_ack_cq_events(cq, 1);
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
