/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* No request asks for a completion, until the queue takes no more. */
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
	meet(); /* : there */
	CHECK(ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init) == 0);
	total = 3 * init.cap.max_send_wr;
	sge = part(&a, 0, 4);
	while (sent < total && now() < end) {
		wr = (struct ibv_send_wr){
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = 0,
			.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
		};
		int error = ibv_post_send(a.qp, &wr, &bad); /* : here */

		CHECK(error == 0 || error == ENOMEM);
		sent += !error;
		ibv_poll_cq(a.cq, 1, &wc);
		if (error)
			break;
	}
	
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
