/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Posts many requests of which none has a completion. With the argument "strict" the queue has to stay
 * full, as a card's does. */
#include "pair.h"

static int put(int number, unsigned flags)
{
	struct ibv_sge sge = part(&a, 0, 4);
	struct ibv_send_wr *bad, wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags | IBV_SEND_INLINE, .wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
	};

	memcpy(a.buf, &number, sizeof number);
	return ibv_post_send(a.qp, &wr, &bad);
}

int main(void)
{
	int strict = getenv("IWARP_STRICT") != NULL;
	double end = now() + 20;

	open_context();
	meet();
	/* One signaled request in as many as there is room for is right anywhere. */
	for (int round = 0; round < 3; round++) {
		for (int i = 1; i < DEPTH; i++)
			CHECK(put(i, 0) == 0);
		CHECK(put(DEPTH, IBV_SEND_SIGNALED) == 0);
		CHECK(take(&a).status == IBV_WC_SUCCESS);
	}
	fprintf(stderr, "-- none signaled\n");
	for (int i = 0; i < DEPTH; i++)
		CHECK(put(i + 1000, 0) == 0);
	if (!strict) {
		for (int i = 0; i < 3 * DEPTH; i++)
			while (put(i, 0) != 0)
				CHECK(errno == ENOMEM && now() < end);
		return 0;
	}
	while (__atomic_load_n((int *)b.buf, __ATOMIC_ACQUIRE) != DEPTH + 999)
		CHECK(now() < end);
	/* All are done; nothing frees their places. */
	for (end = now() + 0.3; now() < end;)
		CHECK(put(0, 0) == ENOMEM);
	return 0;
}
