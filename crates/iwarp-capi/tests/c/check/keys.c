/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Keys that are none, or not of the memory. */
#include <signal.h>
#include "misuse.h"

static void fails(void)
{
	CHECK(take(&a).status != IBV_WC_SUCCESS);
	end();
}

static void unknown_wrong(void)
{
	struct ibv_sge sge;

	open_context();
	meet(); /* unknown_wrong: there */
	sge = part(&a, 0, 4);
	sge.lkey += 1000;
	/* unknown_wrong says: which is no key; the memory is of the region */
	send_of(sge); /* unknown_wrong: here */
	fails();
}

static void stale_wrong(void)
{
	static char memory[64];
	struct ibv_sge sge = { (uintptr_t)memory, sizeof memory, 0 };
	struct ibv_mr *mr;

	start();
	mr = registered(memory, sizeof memory);
	sge.lkey = mr->lkey;
	CHECK(ibv_dereg_mr(mr) == 0); /* stale_wrong: there */
	send_of(sge); /* stale_wrong: here */
	fails();
}

static void behind_wrong(void)
{
	open_context();
	meet(); /* behind_wrong: there */
	/* behind_wrong says: 4 of them behind its end */
	send_of(part(&a, SIZE - 8, 12)); /* behind_wrong: here */
	fails();
}

static void before_wrong(void)
{
	open_context();
	meet(); /* before_wrong: there */
	/* before_wrong says: 16 of them before its beginning */
	send_of(part(&a, -16, 20)); /* before_wrong: here */
	fails();
}

static void domain_wrong(void)
{
	static char memory[64];
	struct ibv_pd *own, *other;
	struct ibv_mr *mr;

	start();
	own = pd;
	pd = other = ibv_alloc_pd(context);
	CHECK(other);
	mr = registered(memory, sizeof memory); /* domain_wrong: there */
	pd = own;
	/* domain_wrong says: another protection domain */
	send_of((struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey }); /* domain_wrong: here */
	CHECK(take(&a).status != IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(other) == 0);
	end();
}

static void readonly_wrong(void)
{
	static char memory[64];
	struct ibv_mr *mr;

	start();
	mr = ibv_reg_mr(pd, memory, sizeof memory, 0); /* readonly_wrong: there */
	CHECK(mr);
	/* readonly_wrong says: lacks IBV_ACCESS_LOCAL_WRITE */
	post(IBV_WR_RDMA_READ, (struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey }, /* readonly_wrong: here */
	     (uintptr_t)b.buf, b.mr->rkey);
	CHECK(take(&a).status != IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

static void rkey_wrong(void)
{
	start();
	/* rkey_wrong says: the peer refuses request 0x7 for 8 bytes */
	post(IBV_WR_RDMA_READ, part(&a, 0, 8), (uintptr_t)b.buf, b.mr->rkey + 1000); /* rkey_wrong: here */
	fails();
}

static void rkey_stale_wrong(void)
{
	static char memory[64];
	struct ibv_mr *mr;
	uint32_t rkey;

	start();
	mr = registered(memory, sizeof memory);
	rkey = mr->rkey;
	CHECK(ibv_dereg_mr(mr) == 0); /* rkey_stale_wrong: there */
	post(IBV_WR_RDMA_READ, part(&a, 0, 8), (uintptr_t)memory, rkey); /* rkey_stale_wrong: here */
	fails();
}

static void rkey_range_wrong(void)
{
	open_context();
	meet(); /* rkey_range_wrong: there */
	/* rkey_range_wrong says: 7 of them behind its end */
	post(IBV_WR_RDMA_READ, part(&a, 0, 8), (uintptr_t)b.buf + SIZE - 1, b.mr->rkey); /* rkey_range_wrong: here */
	fails();
}

static void exact_right(void)
{
	start();
	done(IBV_WR_RDMA_READ, part(&a, SIZE - 8, 8), (uintptr_t)b.buf + SIZE - 8, b.mr->rkey);
	done(IBV_WR_RDMA_WRITE, (struct ibv_sge){ 0, 0, 77 }, (uintptr_t)b.buf, b.mr->rkey);
	end();
}

static void anew_right(void)
{
	static char memory[64];
	struct ibv_mr *mr;

	start();
	for (int i = 0; i < 3; i++) {
		mr = registered(memory, sizeof memory);
		done(IBV_WR_RDMA_READ, (struct ibv_sge){ (uintptr_t)memory, 64, mr->lkey },
		     (uintptr_t)b.buf, b.mr->rkey);
		CHECK(ibv_dereg_mr(mr) == 0);
	}
	end();
}

static void inline_right(void)
{
	char memory[16] = "not registered";
	struct ibv_sge sge = { (uintptr_t)memory, sizeof memory, 0 };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
	};

	start();
	receive(&b, 1, 0, 64);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	memset(memory, 0, sizeof memory);
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).status == IBV_WC_SUCCESS);
	end();
}

static void iova_right(void)
{
	static char memory[4096];
	struct ibv_mr *mr;

	start();
	mr = ibv_reg_mr_iova(pd, memory, sizeof memory, 0x10000, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	done(IBV_WR_RDMA_READ, (struct ibv_sge){ 0x10000, 4096, mr->lkey }, (uintptr_t)b.buf, b.mr->rkey);
	CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

static void parent_right(void)
{
	static char memory[64];
	struct ibv_parent_domain_init_attr attr = { 0 };
	struct ibv_pd *own, *parent;
	struct ibv_mr *mr;

	start();
	own = attr.pd = pd;
	pd = parent = ibv_alloc_parent_domain(context, &attr);
	CHECK(parent);
	mr = registered(memory, sizeof memory);
	pd = own;
	done(IBV_WR_RDMA_READ, (struct ibv_sge){ (uintptr_t)memory, 64, mr->lkey }, (uintptr_t)b.buf,
	     b.mr->rkey);
	CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(parent) == 0);
	end();
}

static void handle(int signal)
{
	struct ibv_sge sge = part(&a, 0, 4);

	sge.lkey += 1000;
	CHECK(signal == SIGUSR1);
	send_of(sge);
}

/* A handler of a signal posts, wherever the program is. */
static void handler(void)
{
	start();
	CHECK(signal(SIGUSR1, handle) != SIG_ERR && raise(SIGUSR1) == 0);
	fails();
}

MAIN({ "handler", handler }, { "unknown_wrong", unknown_wrong }, { "stale_wrong", stale_wrong },
     { "behind_wrong", behind_wrong }, { "before_wrong", before_wrong },
     { "domain_wrong", domain_wrong }, { "readonly_wrong", readonly_wrong },
     { "rkey_wrong", rkey_wrong }, { "rkey_stale_wrong", rkey_stale_wrong },
     { "rkey_range_wrong", rkey_range_wrong }, { "exact_right", exact_right },
     { "anew_right", anew_right }, { "inline_right", inline_right },
     { "iova_right", iova_right }, { "parent_right", parent_right })
