/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Writes and Reads its own memory over two queue pairs, and looks at what has come: once a completion
 * says that it is there, or too early, as the bug has it that the first argument names. */
#include "tortured.h"

/* Waits for so many completions, of which each is a success. */
static void complete(int count)
{
	double end = now() + 20;
	struct ibv_wc wc;

	while (count > 0) {
		if (now() > end)
			give_up("no completion");
		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			give_up(ibv_wc_status_str(wc.status));
		count--;
	}
}

static void post_or_give_up(struct ibv_qp *qp, int opcode)
{
	if (post(qp, opcode))
		give_up("a post");
}

/* Waits until a byte of the second half has come. */
static void await(int at, char letter)
{
	double end = now() + 20;

	while (*(volatile char *)&buf[SIZE + at] != letter)
		if (now() > end)
			give_up("no byte");
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static void check(char letter)
{
	for (int i = 0; i < SIZE; i++)
		if (buf[SIZE + i] != letter)
			abort();
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (int i = 0; i < MESSAGES; i++) {
		memset(buf, 'a' + i, SIZE);
		memset(buf + SIZE, 0, SIZE);
		post_or_give_up(qps[1], RECEIVE);
		post_or_give_up(qps[0], IBV_WR_RDMA_WRITE);
		if (has("polls_first") || has("polls_last")) {
			/* The planted bugs: one byte stands for all. Of the last one that holds on most
			 * cards. */
			await(has("polls_first") ? 0 : SIZE - 1, 'a' + i);
			check('a' + i);
		}
		/* What was written is there once a message behind it is. */
		post_or_give_up(qps[0], IBV_WR_SEND);
		complete(3);
		check('a' + i);
		memset(buf + SIZE, 0, SIZE);
		post_or_give_up(qps[0], IBV_WR_RDMA_READ);
		complete(1);
		check('a' + i);
	}
	return 0;
}
