/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Sends that come before their receive wait for as long as the sender's rnr_retry and the
 * receiver's min_rnr_timer say. */
#include "pair.h"

enum { TIMER_CODE = 26, BEYOND_THE_WORD = 4 };
static const double timer = 0.08192;

static void meet_with(unsigned char retry_of_a, unsigned char retry_of_b)
{
	make(&a, NULL);
	make(&b, NULL);
	min_rnr_timer = TIMER_CODE;
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		rnr_retry = retry_of_a;
		step(a.qp, b.qp, state);
		rnr_retry = retry_of_b;
		step(b.qp, a.qp, state);
	}
}

static void part_again(void)
{
	unmake(&a);
	unmake(&b);
}

static void send(uint64_t id)
{
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
}

/* The receiver's own count says nothing of what it is sent. */
static void gives_up(unsigned char retry)
{
	double begin;
	struct ibv_wc wc;

	meet_with(retry, 7);
	begin = now();
	send(5);
	wc = take(&a);
	CHECK(wc.wr_id == 5);
	CHECK(wc.status == IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(now() - begin >= retry * timer);
	part_again();
}

/* One that a receive comes for in time is like any other, and the time begins anew. */
static void is_taken_in_time(void)
{
	meet_with(6, 0);
	for (int i = 0; i < 3; i++) {
		double begin = now();

		send(i);
		while (now() - begin < 3 * timer)
			CHECK(ibv_poll_cq(a.cq, 1, &(struct ibv_wc){ 0 }) == 0);
		receive(&b, i, 0, 8);
		CHECK(take(&b).status == IBV_WC_SUCCESS);
		CHECK(take(&a).status == IBV_WC_SUCCESS);
	}
	part_again();
}

static void waits_without_limit(void)
{
	double begin;

	meet_with(7, 0);
	begin = now();
	send(6);
	while (now() - begin < BEYOND_THE_WORD)
		CHECK(ibv_poll_cq(a.cq, 1, &(struct ibv_wc){ 0 }) == 0);
	receive(&b, 9, 0, 8);
	CHECK(take(&b).status == IBV_WC_SUCCESS);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	part_again();
}

int main(void)
{
	open_context();
	gives_up(0);
	gives_up(1);
	gives_up(3);
	is_taken_in_time();
	waits_without_limit();
	close_context();
	return 0;
}
