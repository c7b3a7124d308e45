/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An event is not acknowledged: the end of its queue would wait for ever. */
#include "pair.h"
#include "told.h"

static struct ibv_cq *cq;

/* So that the program ends. */
static void acknowledge(void)
{
	ibv_ack_cq_events(cq, 1);
}

int main(void)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	pthread_t thread;
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
	CHECK(ibv_get_cq_event(channel, &cq, &side) == 0 && cq == a.cq && side == &a); /* : there */
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	thread = once_told("event-not-acknowledged", acknowledge);

	unmake(&a); /* : here */
	unmake(&b);
	close_context();
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
