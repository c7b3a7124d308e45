/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A Read behind a Write, a call that is refused, and looks at an empty queue: for a trace. Prints
 * the addresses that occur in it. */
#include "requests.h"

int main(void)
{
	struct ibv_wc wc;

	open_context();
	meet();
	printf("%p %p %p %u %u\n", (void *)a.cq, (void *)a.buf, (void *)b.buf, a.qp->qp_num,
	       b.qp->qp_num);
	done(IBV_WR_RDMA_WRITE, part(&a, 0, 100), (uintptr_t)b.buf, b.mr->rkey);
	CHECK(ibv_poll_cq(b.cq, 1, &wc) == 0);
	CHECK(ibv_modify_qp(a.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT }, IBV_QP_STATE));
	unmake(&a);
	unmake(&b);
	return 0;
}
