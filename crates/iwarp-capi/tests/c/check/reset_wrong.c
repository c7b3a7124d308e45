/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A request is posted before the queue pair is connected. */
#include "pair.h"

int main(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	};

	open_context();
	make(&a, NULL); /* : there */
	sge = part(&a, 0, 4);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == EINVAL); /* : here */
	unmake(&a);
	close_context();
	return 0;
}
