/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory that two requests share, or the program and the device; and memory that they do not. */
#include "misuse.h"

static void read_to(size_t offset)
{
	post(IBV_WR_RDMA_READ, part(&a, offset, 8), (uintptr_t)b.buf, b.mr->rkey);
}

static void receives_wrong(void)
{
	start();
	receive(&a, 1, 0, 64); /* receives_wrong: there */
	receive(&a, 2, 63, 64); /* receives_wrong: here */
	end();
}

static void reads_wrong(void)
{
	start();
	read_to(0); /* reads_wrong: there */
	read_to(4); /* reads_wrong: here */
	end();
}

/* The message of the first receive is there, and the program has not looked at it. */
static void unpolled_wrong(void)
{
	start();
	receive(&b, 1, 0, 64); /* unpolled_wrong: there */
	done(IBV_WR_SEND, part(&a, 0, 8), 0, 0);
	done(IBV_WR_RDMA_READ, part(&a, 0, 8), (uintptr_t)b.buf, b.mr->rkey);
	receive(&b, 2, 0, 64); /* unpolled_wrong: here */
	end();
}

/* The peer has no receive yet, so the Send waits. */
static void changed_wrong(void)
{
	start();
	send_of(part(&a, 0, 8)); /* changed_wrong: here */
	a.buf[7] = 1;
	receive(&b, 1, 0, 64);
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
	end();
}

static void apart_right(void)
{
	start();
	receive(&a, 1, 0, 64);
	receive(&a, 2, 64, 64);
	read_to(128);
	read_to(136);
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&a).status == IBV_WC_SUCCESS);
	end();
}

static void again_right(void)
{
	start();
	for (int i = 0; i < 4; i++) {
		receive(&b, 1, 0, 64);
		send_of(part(&a, 0, 8));
		CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
		read_to(0);
		CHECK(take(&a).status == IBV_WC_SUCCESS);
	}
	end();
}

static void changed_right(void)
{
	start();
	for (int i = 0; i < 4; i++) {
		receive(&b, 1, 0, 64);
		a.buf[0] = i;
		send_of(part(&a, 0, 8));
		CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
	}
	end();
}

/* Two Sends of one buffer only read it. */
static void sources_right(void)
{
	start();
	receive(&b, 1, 0, 64);
	receive(&b, 2, 64, 64);
	send_of(part(&a, 0, 8));
	send_of(part(&a, 0, 8));
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&a).status == IBV_WC_SUCCESS);
	end();
}

static void flushed_right(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	start();
	receive(&b, 1, 0, 64);
	CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
	CHECK(take(&b).status == IBV_WC_WR_FLUSH_ERR);
	receive(&b, 2, 0, 64);
	CHECK(take(&b).status == IBV_WC_WR_FLUSH_ERR);
	end();
}

MAIN({ "receives_wrong", receives_wrong }, { "reads_wrong", reads_wrong },
     { "unpolled_wrong", unpolled_wrong }, { "changed_wrong", changed_wrong },
     { "apart_right", apart_right }, { "again_right", again_right },
     { "changed_right", changed_right }, { "sources_right", sources_right },
     { "flushed_right", flushed_right })
