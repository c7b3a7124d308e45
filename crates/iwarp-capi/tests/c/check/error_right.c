/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* An Atomic whose place is not aligned fails; the program stops then. */
#include "pair.h"

static int put(void)
{
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = { (uintptr_t)b.buf + 1, 1, 0, b.mr->rkey },
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
