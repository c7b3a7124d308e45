/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A Write with an unknown key fails; the program stops then. */
#include "pair.h"

static int put(void)
{
	struct ibv_sge sge = part(&a, 0, 4);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)b.buf, b.mr->rkey + 1000 },
	};

	return ibv_post_send(a.qp, &wr, &bad);
}

int main(void)
{
	struct ibv_wc wc;

	open_context();
	meet();
	CHECK(put() == 0);
	wc = take(&a);
	CHECK(wc.status != IBV_WC_SUCCESS && (unsigned)wc.opcode == 0xbadbadba);

	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
