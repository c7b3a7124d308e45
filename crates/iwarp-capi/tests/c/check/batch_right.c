/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An Atomic succeeds and the next fails, as its place is not aligned. The program polls both at once, posts a receive for the
 * first before it looks at the second, and stops then; a list that was taken in part is not posted
 * again until its requests have completed. A last request drains the queue. */
#include "pair.h"

static int put(uint64_t id, size_t offset)
{
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { (uintptr_t)b.buf + offset, 1, 0, b.mr->rkey },
	};

	return ibv_post_send(a.qp, &wr, &bad);
}

int main(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR }, is;
	struct ibv_qp_init_attr init;
	struct ibv_send_wr wr[2] = { 0 }, *bad;
	struct ibv_sge sge;
	struct ibv_wc wc[4];
	double end;
	int n, found = 0;

	open_context();
	meet();
	sge = part(&a, 0, 4);
	for (int i = 0; i < 2; i++)
		wr[i] = (struct ibv_send_wr){
			.next = i ? NULL : &wr[1], .sg_list = &sge, .num_sge = 1,
			.opcode = i ? 77 : IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
		};
	CHECK(ibv_post_send(a.qp, wr, &bad) && bad == &wr[1]);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	CHECK(ibv_post_send(a.qp, wr, &bad) && bad == &wr[1]);
	CHECK(take(&a).status == IBV_WC_SUCCESS);

	/* The completions wait until both are there. */
	CHECK(put(1, 0) == 0 && put(2, 1) == 0);
	end = now() + 20;
	do
		CHECK(now() < end && ibv_query_qp(a.qp, &is, IBV_QP_STATE, &init) == 0);
	while (is.qp_state != IBV_QPS_ERR);
	n = ibv_poll_cq(a.cq, 4, wc);
	if (n == 2) {
		receive(&a, 9, 0, 4);
		found = 1;
	}
	/* The state may be seen before the completions. */
	while (n < 2)
		wc[n++] = take(&a);
	CHECK(n == 2 && wc[1].status != IBV_WC_SUCCESS);
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
	CHECK(put(3, 0) == 0);
	while (found >= 0) {
		struct ibv_wc last = take(&a);

		CHECK(last.status == IBV_WC_WR_FLUSH_ERR);
		found--;
	}
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
