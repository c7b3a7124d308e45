/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An event is not acknowledged: the end of its queue would wait for ever. */
#include <pthread.h>
#include "pair.h"

static int said[2], errors;

/* Acknowledges once the checker has spoken, so that the program ends. */
static void *acknowledge(void *cq)
{
	char text[1 << 14];
	size_t length = 0;
	ssize_t got;

	do {
		got = read(said[0], text + length, sizeof text - 1 - length);
		CHECK(got > 0 && write(errors, text + length, got) == got);
		text[length += got] = 0;
	} while (!strstr(text, "event-not-acknowledged"));
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

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
	pthread_t thread;

	errors = dup(2);
	CHECK(errors >= 0 && pipe(said) == 0 && dup2(said[1], 2) == 2);
	CHECK(pthread_create(&thread, NULL, acknowledge, cq) == 0);

	unmake(&a);
	unmake(&b);
	close_context();
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
