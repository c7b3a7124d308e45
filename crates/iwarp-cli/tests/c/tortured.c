/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends messages to itself over two queue pairs, rightly or with the bug that the first argument
 * names. */
#include "tortured.h"

/* False where it stands for nothing that is waited for. */
static bool check(const struct ibv_wc *wc)
{
	char copy[SIZE];

	/* The planted bug: fields that a completion with an error does not have. */
	if (has("trusts_length") && (uint8_t)wc->wr_id == (uint8_t)RECEIVE)
		memcpy(copy, buf + SIZE, wc->byte_len - 8);
	/* The planted bug: it tries once more, without end. */
	if (wc->status != IBV_WC_SUCCESS && has("retries_forever")) {
		bool receives = (uint8_t)wc->wr_id == (uint8_t)RECEIVE;

		if (post(qps[receives], receives ? RECEIVE : IBV_WR_SEND))
			give_up("a post");
		return false;
	}
	/* The planted bug: a completion with an error counts like any other. */
	if (wc->status != IBV_WC_SUCCESS && !has("unseen_status"))
		give_up(ibv_wc_status_str(wc->status));
	/* The planted bug, see below: it is one of this message. */
	if (has("one_for_one") && wc->wr_id >> 8 != message)
		abort();
	return true;
}

/* Looks for a completion for some time, as programs do before they sleep. */
static bool spin(double seconds)
{
	double end = now() + seconds;
	struct ibv_wc wc;

	do {
		if (ibv_poll_cq(cq, 1, &wc) == 1 && check(&wc))
			return true;
	} while (now() < end);
	return false;
}

/* Takes so many completions, and sleeps until there are some. */
static void take(int count)
{
	while (count > 0) {
		struct ibv_cq *event_cq;
		void *event_context;

		if (spin(0.1)) {
			count--;
			continue;
		}
		/* The planted bug: it takes for granted that they come at once. */
		if (has("impatient"))
			abort();
		/* The planted bug: what has taken long comes no more. */
		if (has("one_for_one"))
			return;
		/* Other work. */
		usleep(300000);
		if (ibv_req_notify_cq(cq, 0))
			give_up("ibv_req_notify_cq");
		/* The planted bug: what has come in between raises no event, and is not looked for. */
		if (!has("lost_wakeup") && spin(0)) {
			count--;
			continue;
		}
		if (ibv_get_cq_event(channel, &event_cq, &event_context))
			give_up("ibv_get_cq_event");
		ibv_ack_cq_events(event_cq, 1);
	}
}

/* The second of six Sends fails on purpose: all twelve requests end, each once, the Send with the
 * status that was asked for, those behind it flushed, and both queue pairs are in error. */
static int books(void)
{
	enum { COUNT = 6 };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int ended[2] = { 0, 0 }, succeeded = 0, chosen = 0;
	double end = now() + 20;
	struct ibv_wc wc;

	for (int i = 0; i < COUNT; i++)
		if (post(qps[1], RECEIVE))
			return 1;
	for (int i = 0; i < COUNT; i++)
		if (post(qps[0], IBV_WR_SEND))
			return 2;
	while (ended[0] + ended[1] < 2 * COUNT) {
		if (now() > end)
			return 3;
		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		bool sent = wc.qp_num == qps[0]->qp_num;

		ended[!sent]++;
		if (!sent)
			continue;
		succeeded += wc.status == IBV_WC_SUCCESS;
		chosen += wc.status == IBV_WC_RNR_RETRY_EXC_ERR;
		if (ended[0] == 2 && wc.status != IBV_WC_RNR_RETRY_EXC_ERR)
			return 4;
		if (ended[0] > 2 && wc.status != IBV_WC_WR_FLUSH_ERR)
			return 5;
	}
	if (succeeded != 1 || chosen != 1 || ended[0] != COUNT)
		return 6;
	if (ibv_poll_cq(cq, 1, &wc) != 0)
		return 7;
	for (int i = 0; i < 2; i++)
		do {
			if (now() > end || ibv_query_qp(qps[i], &attr, IBV_QP_STATE, &init))
				return 8;
		} while (attr.qp_state != IBV_QPS_ERR);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		bug = argv[1];
	open_all();
	if (has("forked")) {
		int status;

		if (fork() == 0) {
			open_all();
			exit(0);
		}
		return wait(&status) < 0 || !WIFEXITED(status) ? 9 : WEXITSTATUS(status);
	}
	connect_all();
	if (has("books"))
		return books();
	for (int i = 0; i < MESSAGES; i++) {
		message = i;
		memset(buf, 'a' + i, SIZE);
		if (post(qps[1], RECEIVE))
			give_up("ibv_post_recv");
		/* The planted bug: a request that was refused is waited for. */
		if (post(qps[0], IBV_WR_SEND) && !has("unseen_post"))
			give_up("ibv_post_send");
		take(2);
		if (memcmp(buf, buf + SIZE, SIZE) != 0)
			abort();
	}
	return 0;
}
