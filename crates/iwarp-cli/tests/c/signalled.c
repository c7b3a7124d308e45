/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends messages to itself of which few requests have completions, and waits for events: rightly or
 * with the bug that the first argument names. */
#include "tortured.h"

#include <poll.h>

enum { ROUND = 4 };

/* The error path: what is there is given back. */
static void tear_down(const char *why)
{
	for (int i = 0; i < 2; i++)
		if (ibv_destroy_qp(qps[i]))
			abort();
	if (ibv_destroy_cq(cq))
		abort();
	give_up(why);
}

static struct ibv_cq *get_event(void)
{
	struct ibv_cq *event_cq;
	void *event_context;

	if (ibv_get_cq_event(channel, &event_cq, &event_context))
		give_up("ibv_get_cq_event");
	return event_cq;
}

/* Events that are there while no work request is. */
static void take_no_event(void)
{
	struct pollfd ready = { .fd = channel ? channel->fd : -1, .events = POLLIN };
	struct ibv_wc wc;

	while (poll(&ready, 1, 0) == 1) {
		ibv_ack_cq_events(get_event(), 1);
		/* The planted bug: the manual allows an event for nothing. */
		if (ibv_poll_cq(cq, 1, &wc) != 1 && has("event_is_completion"))
			abort();
	}
}

/* One receive at a time, whose completion is waited for by its event. */
static void by_events(void)
{
	for (message = 0; message < MESSAGES; message++) {
		bool done = false;

		take_no_event();
		if (ibv_req_notify_cq(cq, 0) && !has("unseen_channel"))
			give_up("ibv_req_notify_cq");
		if (post(qps[1], RECEIVE) || post(qps[0], IBV_WR_SEND))
			give_up("a post");
		while (!done) {
			struct ibv_wc wc;

			get_event();
			/* The planted bug: this is left to the end, which errors do not reach. */
			if (!has("acks_never"))
				ibv_ack_cq_events(cq, 1);
			if (ibv_poll_cq(cq, 1, &wc) == 1) {
				if (wc.status != IBV_WC_SUCCESS)
					tear_down(ibv_wc_status_str(wc.status));
				done = true;
			}
			if (has("acks_never"))
				ibv_ack_cq_events(cq, 1);
		}
	}
}

/* Lists of Sends of which the last has a completion, whose wr_id is a pointer. */
static void by_rounds(void)
{
	struct ibv_sge sge = { (uintptr_t)buf, SIZE, mr->lkey };
	int rounds = 0, received = 0, failed = 0;
	double end = now() + 20;

	for (int i = 0; i < 2; i++) {
		struct ibv_send_wr list[ROUND], *bad;

		for (int j = 0; j < ROUND; j++) {
			bool last = j == ROUND - 1;

			list[j] = (struct ibv_send_wr){
				.wr_id = last ? (uintptr_t)&rounds : 0, .next = last ? NULL : &list[j + 1],
				.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				.send_flags = last ? IBV_SEND_SIGNALED : 0,
			};
			if (post(qps[1], RECEIVE))
				give_up("ibv_post_recv");
		}
		if (ibv_post_send(qps[0], list, &bad))
			give_up("ibv_post_send");
	}
	while (rounds < 2 && now() < end) {
		struct ibv_wc wc;

		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		failed += wc.status != IBV_WC_SUCCESS;
		if (wc.qp_num != qps[0]->qp_num)
			received++;
		/* The planted bug: with an error those come too that asked for no completion. */
		else if (has("unsignaled") || wc.status == IBV_WC_SUCCESS)
			++*(int *)(uintptr_t)wc.wr_id;
		else if (wc.wr_id)
			rounds++;
	}
	if (failed)
		give_up("an error");
	if (rounds < 2)
		abort();
}

int main(int argc, char **argv)
{
	silent = true;
	begin(argc, argv);
	for (int i = 0; i < (has("unsignaled") || has("rounds") ? 3 : 0); i++)
		by_rounds();
	if (!has("unsignaled") && !has("rounds"))
		by_events();
	return 0;
}
