/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A peer writes to memory, or the program sends from memory, that was unmapped while it was
 * registered: for programs in languages that have handlers of SIGSEGV of their own. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include "pair.h"

enum { LEN = 1 << 16 };

void gone_open(void)
{
	open_context();
}

static enum ibv_event_type told(struct ibv_qp *of)
{
	struct pollfd ready = { context->async_fd, POLLIN };
	struct ibv_async_event event;

	for (;;) {
		CHECK(poll(&ready, 1, 20000) == 1);
		CHECK(ibv_get_async_event(context, &event) == 0);
		ibv_ack_async_event(&event);
		if (event.element.qp == of)
			return event.event_type;
	}
}

/* The request fails, and nothing else. */
void gone_round(int own)
{
	/* Where no allocator maps anything by itself. */
	static uintptr_t place = 0x200000000000;
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	make(&a, NULL);
	make(&b, NULL);
	CHECK(ibv_dereg_mr(b.mr) == 0);
	free(b.buf);
	b.buf = mmap((void *)(place += 16 << 20), LEN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(b.buf != MAP_FAILED);
	b.mr = ibv_reg_mr(pd, b.buf, LEN, rights);
	CHECK(b.mr);
	join();
	CHECK(munmap(b.buf, LEN) == 0);

	struct side *from = own ? &b : &a, *to = own ? &a : &b;
	struct ibv_sge sge = part(from, 0, LEN);
	struct ibv_send_wr wr = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)to->buf, to->mr->rkey },
	}, *bad;
	CHECK(ibv_post_send(from->qp, &wr, &bad) == 0);
	if (own) {
		struct ibv_wc wc = take(&b);
		CHECK(wc.wr_id == 7 && wc.status == IBV_WC_LOC_PROT_ERR);
	}
	CHECK(told(b.qp) == (own ? IBV_EVENT_QP_FATAL : IBV_EVENT_QP_ACCESS_ERR));

	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_qp(b.qp) == 0);
	CHECK(ibv_destroy_cq(a.cq) == 0 && ibv_destroy_cq(b.cq) == 0);
	CHECK(ibv_dereg_mr(a.mr) == 0 && ibv_dereg_mr(b.mr) == 0);
	free(a.buf);
}

/* A fault that is nobody's. */
void gone_crash(void)
{
	*(volatile char *)8 = 1;
}

/* As the Java Native Interface names and calls them. */
void Java_Gone_open(void *env, void *class)
{
	(void)env, (void)class;
	gone_open();
}

void Java_Gone_round(void *env, void *class, int own)
{
	(void)env, (void)class;
	gone_round(own);
}

void Java_Gone_crash(void *env, void *class)
{
	(void)env, (void)class;
	gone_crash();
}
