/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends lists of messages to itself, and posts again what was refused of one: the rest, or with the
 * planted bug whole_list all of it. */
#include "tortured.h"

enum { COUNT = 4, PART = SIZE / COUNT, TRIES = 100 };

static struct ibv_sge part(int number, bool receives)
{
	uintptr_t at = (uintptr_t)buf + (receives ? SIZE : 0) + number * PART;

	return (struct ibv_sge){ at, PART, mr->lkey };
}

static void send_list(void)
{
	struct ibv_send_wr list[COUNT], *left = list, *bad;
	struct ibv_sge sges[COUNT];

	for (int i = 0; i < COUNT; i++) {
		sges[i] = part(i, false);
		list[i] = (struct ibv_send_wr){
			.next = i < COUNT - 1 ? &list[i + 1] : NULL, .sg_list = &sges[i], .num_sge = 1,
			.opcode = IBV_WR_SEND,
		};
	}
	for (int i = 0; ibv_post_send(qps[0], left, &bad); i++) {
		if (i == TRIES)
			give_up("ibv_post_send");
		/* The planted bug: those before bad_wr are posted. */
		left = has("whole_list") ? list : bad;
	}
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	for (int i = 0; i < MESSAGES; i++) {
		double end = now() + 20;

		for (int j = 0; j < COUNT; j++) {
			struct ibv_sge sge = part(j, true);
			struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *bad;

			memset(buf + j * PART, COUNT * i + j, PART);
			if (ibv_post_recv(qps[1], &receive, &bad))
				give_up("ibv_post_recv");
		}
		send_list();
		for (int left = 2 * COUNT; left > 0;) {
			struct ibv_wc wc;

			if (now() > end)
				give_up("no completion");
			if (ibv_poll_cq(cq, 1, &wc) != 1)
				continue;
			if (wc.status != IBV_WC_SUCCESS)
				give_up(ibv_wc_status_str(wc.status));
			left--;
		}
		if (memcmp(buf, buf + SIZE, SIZE) != 0)
			abort();
	}
	return 0;
}
