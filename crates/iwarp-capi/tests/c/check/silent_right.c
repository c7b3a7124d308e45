/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The last of as many requests as the queue has places asks for a completion. */
#include "pair.h"

int main(void)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_sge sge;
	double end = now() + 20;
	unsigned sent = 0, total;
	struct ibv_wc wc;

	open_context();
	meet();
	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init) == 0);
	total = 3 * init.cap.max_send_wr;
	sge = part(&a, 0, 4);
	while (sent < total && now() < end) {
		wr = (struct ibv_send_wr){
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = (sent + 1) % init.cap.max_send_wr ? 0 : IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
		};
		int error = ibv_post_send(a.qp, &wr, &bad);

		CHECK(error == 0 || error == ENOMEM);
		sent += !error;
		ibv_poll_cq(a.cq, 1, &wc);
		
	}
	CHECK(sent == total);
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
