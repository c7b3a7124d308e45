/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A list of which the last request is refused is posted again, whole. */
#include "pair.h"

int main(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr[3], *bad = NULL;

	open_context();
	meet();
	sge = part(&a, 0, 4);
	for (int i = 0; i < 3; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i < 2 ? &wr[i + 1] : NULL, .sg_list = &sge, .num_sge = 1,
			.opcode = i < 2 ? IBV_WR_RDMA_WRITE : 77, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
		};
	CHECK(ibv_post_send(a.qp, wr, &bad) && bad == &wr[2]);
	wr[2].opcode = IBV_WR_RDMA_WRITE;
	CHECK(ibv_post_send(a.qp, wr, &bad) == 0); /* : here */
	for (int i = 0; i < 5; i++)
		CHECK(take(&a).status == IBV_WC_SUCCESS);
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
