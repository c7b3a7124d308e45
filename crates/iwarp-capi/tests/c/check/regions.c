/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Memory that goes while the device has it. */
#include "misuse.h"

static char memory[4096];
static struct ibv_mr *mr;

static void receive_here(struct ibv_srq *srq)
{
	struct ibv_sge sge = { (uintptr_t)memory, 64, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK((srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(b.qp, &wr, &bad)) == 0);
}

static void dereg(void)
{
	CHECK(ibv_dereg_mr(mr) == 0);
}

static void begin(void)
{
	start();
	mr = registered(memory, sizeof memory);
}

static void receive_wrong(void)
{
	begin();
	receive_here(NULL); /* receive_wrong: there */
	/* receive_wrong says: receive 0x5 of queue pair */
	dereg(); /* receive_wrong: here */
	end();
}

static void shared_wrong(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq;

	begin();
	srq = ibv_create_srq(pd, &attr);
	CHECK(srq);
	receive_here(srq); /* shared_wrong: there */
	/* shared_wrong says: receive 0x5 of a shared queue */
	dereg(); /* shared_wrong: here */
	CHECK(ibv_destroy_srq(srq) == 0);
	end();
}

static void unmapped_wrong(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	start();
	mr = registered(page, 4096); /* unmapped_wrong: there */
	CHECK(munmap(page, 4096) == 0);
	/* unmapped_wrong says: is not mapped any more */
	send_of((struct ibv_sge){ (uintptr_t)page, 64, mr->lkey }); /* unmapped_wrong: here */
	CHECK(take(&a).status != IBV_WC_SUCCESS);
	dereg();
	end();
}

static void polled_right(void)
{
	begin();
	receive_here(NULL);
	send_of(part(&a, 0, 8));
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
	dereg();
	end();
}

static void destroyed_right(void)
{
	begin();
	receive_here(NULL);
	unmake(&b);
	dereg();
	unmake(&a);
	close_context();
}

static void reset_right(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	begin();
	receive_here(NULL);
	CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
	dereg();
	end();
}

static void drained_right(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	begin();
	receive_here(NULL);
	CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
	CHECK(take(&b).status == IBV_WC_WR_FLUSH_ERR);
	dereg();
	end();
}

static void unsignalled_right(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
	};

	begin();
	sge = (struct ibv_sge){ (uintptr_t)memory, 64, mr->lkey };
	wr.wr.rdma.remote_addr = (uintptr_t)b.buf;
	wr.wr.rdma.rkey = b.mr->rkey;
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	write_four(IBV_SEND_SIGNALED);
	CHECK(take(&a).status == IBV_WC_SUCCESS);
	dereg();
	end();
}

static void emptied_right(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq;

	begin();
	srq = ibv_create_srq(pd, &attr);
	CHECK(srq);
	receive_here(srq);
	CHECK(ibv_destroy_srq(srq) == 0);
	dereg();
	end();
}

MAIN({ "receive_wrong", receive_wrong }, { "shared_wrong", shared_wrong },
     { "unmapped_wrong", unmapped_wrong }, { "polled_right", polled_right },
     { "destroyed_right", destroyed_right }, { "reset_right", reset_right },
     { "drained_right", drained_right }, { "unsignalled_right", unsignalled_right },
     { "emptied_right", emptied_right })
