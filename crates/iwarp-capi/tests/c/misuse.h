/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Scenarios for the checker. One whose name ends with _wrong breaks a rule at its line `here`, and
 * the report names its line `there`, too. */
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include "requests.h"
#include "scenarios.h"
#include "told.h"

/* Ends both sides, and the device. */
static void end(void)
{
	unmake(&a);
	unmake(&b);
	close_context();
}

static void start(void)
{
	open_context();
	meet();
}

static struct ibv_mr *registered(void *memory, size_t length)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, IBV_ACCESS_LOCAL_WRITE | rights);

	CHECK(mr);
	return mr;
}

/* A Write of four bytes, from the first to the second. */
static void write_four(unsigned flags)
{
	struct ibv_sge sge = part(&a, 0, 4);
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags,
		.wr.rdma = { (uintptr_t)b.buf, b.mr->rkey },
	};

	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
}

static void send_of(struct ibv_sge sge)
{
	post(IBV_WR_SEND, sge, 0, 0);
}
