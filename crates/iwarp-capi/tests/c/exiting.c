/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Receives that are posted when the process exits stay so, until the program has them flushed. */
#include "pair.h"

static void expect(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s\n", what);
	_exit(1);
}

static void flush(struct side *side)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;

	expect(ibv_poll_cq(side->cq, 1, &wc) == 0, "the exit has flushed a receive");
	expect(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE) == 0, "no way to the error state");
	for (uint64_t id = 1; id <= 2; id++) {
		expect(ibv_poll_cq(side->cq, 1, &wc) == 1, "a flushed receive is missing");
		expect(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == id, "another completion");
	}
	expect(ibv_poll_cq(side->cq, 1, &wc) == 0, "one completion too many");
}

/* Registered first, called last: behind what the library does at exit. */
static void at_exit(void)
{
	if (!a.qp)
		return;
	flush(&a);
	flush(&b);
	fprintf(stderr, "seen\n");
}

/* Sees to it that there is a connection. */
static void exchange(struct side *from, struct side *to)
{
	struct ibv_sge sge = part(from, 0, 100);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	receive(to, 0, 0, 100);
	CHECK(ibv_post_send(from->qp, &wr, &bad) == 0);
	CHECK(take(from).status == IBV_WC_SUCCESS);
	CHECK(take(to).status == IBV_WC_SUCCESS);
}

int main(void)
{
	atexit(at_exit);
	open_context();
	meet();
	exchange(&a, &b);
	exchange(&b, &a);
	for (int id = 1; id <= 2; id++) {
		receive(&a, id, 0, 100);
		receive(&b, id, 0, 100);
	}
	return 0;
}
