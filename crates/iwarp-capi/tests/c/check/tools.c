/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory that the program uses while the device has it, as tools for memory see it. */
#include "misuse.h"

static unsigned char *memory;
static struct ibv_mr *mr;

static void begin(void)
{
	start();
	memory = malloc(64);
	CHECK(memory);
	mr = registered(memory, 64);
}

static void finish(void)
{
	CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

static struct ibv_sge sge(void)
{
	return (struct ibv_sge){ (uintptr_t)memory, 64, mr->lkey };
}

static void receive_there(void)
{
	struct ibv_sge list = sge();
	struct ibv_recv_wr wr = { .sg_list = &list, .num_sge = 1 }, *bad;

	CHECK(ibv_post_recv(b.qp, &wr, &bad) == 0);
}

static void freed_wrong(void)
{
	begin();
	free(memory);
	/* freed_wrong says: is of no object that lives */
	receive_there(); /* freed_wrong: here */
	unmake(&b);
	CHECK(ibv_dereg_mr(mr) == 0);
	unmake(&a);
	close_context();
}

/* It is freed before the message has come. */
static void late_wrong(void)
{
	begin();
	/* late_wrong says: is of no object that lives any more */
	receive_there(); /* late_wrong: here */
	free(memory);
	done(IBV_WR_SEND, part(&a, 0, 8), 0, 0);
	CHECK(take(&b).status == IBV_WC_SUCCESS);
	finish();
}

/* The message is there, which the program cannot know without a poll. */
static void early_wrong(void)
{
	begin();
	a.buf[0] = 7;
	receive_there();
	done(IBV_WR_SEND, part(&a, 0, 8), 0, 0);
	done(IBV_WR_RDMA_READ, part(&a, 64, 8), (uintptr_t)b.buf, b.mr->rkey);
	CHECK(memory[0] != 99); /* early_wrong: here */
	CHECK(take(&b).status == IBV_WC_SUCCESS && memory[0] == 7);
	free(memory);
	finish();
}

static void changed_wrong(void)
{
	begin();
	receive_there();
	post(IBV_WR_SEND, part(&a, 0, 8), 0, 0);
	a.buf[0] = 7; /* changed_wrong: here */
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
	free(memory);
	finish();
}

static void undefined_wrong(void)
{
	begin();
	receive(&b, 1, 0, 64);
	post(IBV_WR_SEND, sge(), 0, 0); /* undefined_wrong: here */
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
	free(memory);
	finish();
}

static void polled_right(void)
{
	begin();
	for (int i = 1; i < 5; i++) {
		memory[0] = 0;
		receive_there();
		a.buf[0] = i;
		post(IBV_WR_SEND, part(&a, 0, 8), 0, 0);
		CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
		CHECK(memory[0] == i);
		post(IBV_WR_RDMA_READ, part(&a, 64, 8), (uintptr_t)b.buf, b.mr->rkey);
		CHECK(take(&a).status == IBV_WC_SUCCESS && a.buf[64] == 0);
	}
	memory[0] = 1;
	free(memory);
	finish();
}

MAIN({ "freed_wrong", freed_wrong }, { "late_wrong", late_wrong },
     { "early_wrong", early_wrong }, { "changed_wrong", changed_wrong },
     { "undefined_wrong", undefined_wrong }, { "polled_right", polled_right })
