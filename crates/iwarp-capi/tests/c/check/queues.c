/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Completion queues with too few places. */
#include "misuse.h"

static int places;

static void begin(void)
{
	cq_places = 8;
	start(); 
	places = a.cq->cqe;
	CHECK(places < DEPTH);
}

static void receives_wrong(void)
{
	begin(); /* receives_wrong: there */
	for (int i = 0; i < places; i++)
		receive(&a, i, 16 * i, 16);
	receive(&a, 99, 0, 16); /* receives_wrong: here */
	end();
}

static void sends_wrong(void)
{
	begin(); /* sends_wrong: there */
	for (int i = 0; i < places; i++)
		write_four(IBV_SEND_SIGNALED);
	write_four(IBV_SEND_SIGNALED); /* sends_wrong: here */
	end();
}

static void both_wrong(void)
{
	begin(); /* both_wrong: there */
	for (int i = 0; i < places; i++)
		receive(&a, i, 16 * i, 16);
	write_four(IBV_SEND_SIGNALED); /* both_wrong: here */
	end();
}

static void full_right(void)
{
	begin();
	for (int i = 0; i < places; i++)
		receive(&a, i, 16 * i, 16);
	end();
}

static void polled_right(void)
{
	begin();
	for (int i = 0; i < 4 * places; i++) {
		write_four(IBV_SEND_SIGNALED);
		CHECK(take(&a).status == IBV_WC_SUCCESS);
	}
	end();
}

static void unsignalled_right(void)
{
	begin();
	for (int i = 0; i < 3 * places; i++)
		write_four(0);
	write_four(IBV_SEND_SIGNALED);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	end();
}

static void again_right(void)
{
	begin();
	for (int i = 0; i < 3; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

		for (int j = 0; j < places; j++)
			receive(&a, j, 16 * j, 16);
		CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
		step(a.qp, b.qp, IBV_QPS_INIT);
	}
	end();
}

static void resized_right(void)
{
	begin();
	CHECK(ibv_resize_cq(a.cq, 2 * places) == 0);
	for (int i = 0; i < 2 * places; i++)
		receive(&a, i, 16 * i, 16);
	end();
}

MAIN({ "receives_wrong", receives_wrong }, { "sends_wrong", sends_wrong },
     { "both_wrong", both_wrong }, { "full_right", full_right },
     { "polled_right", polled_right }, { "unsignalled_right", unsignalled_right },
     { "again_right", again_right }, { "resized_right", resized_right })
