/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A protection domain is in use while it has memory regions; those of an RNIC outlive it. Nothing is
 * left of either afterwards: say the library, and a leak checker. */
#include "pair.h"

static char memory[4096];
static int is_rnic;

static struct ibv_mr *region(struct ibv_pd *of)
{
	struct ibv_mr *mr = ibv_reg_mr(of, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

	CHECK(mr && mr->pd == of);
	return mr;
}

/* A domain that was deallocated is that of its regions still. */
static void domain_first(void)
{
	struct ibv_pd *first = ibv_alloc_pd(context);
	struct ibv_mr *one = region(first), *other = region(first);

	CHECK(ibv_dealloc_pd(first) == (is_rnic ? 0 : EBUSY));
	CHECK(ibv_dereg_mr(one) == 0);
	CHECK(other->pd == first && first->context == context);
	if (!is_rnic)
		CHECK(ibv_dealloc_pd(first) == EBUSY);
	CHECK(ibv_dereg_mr(other) == 0);
	if (!is_rnic)
		CHECK(ibv_dealloc_pd(first) == 0);
}

/* The case where its last region goes to another domain instead. */
static void moved(void)
{
	struct ibv_pd *first = ibv_alloc_pd(context);
	struct ibv_mr *mr = region(first);

	CHECK(ibv_dealloc_pd(first) == (is_rnic ? 0 : EBUSY));
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) == 0);
	CHECK(mr->pd == pd);
	if (!is_rnic)
		CHECK(ibv_dealloc_pd(first) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* A parent domain uses another one, for as long as a region is its. */
static void parent(void)
{
	struct ibv_pd *under = ibv_alloc_pd(context);
	struct ibv_parent_domain_init_attr init = { .pd = under };
	struct ibv_pd *over = ibv_alloc_parent_domain(context, &init);
	struct ibv_mr *mr;

	CHECK(over);
	mr = region(over);
	CHECK(ibv_dealloc_pd(under) == EBUSY);
	CHECK(ibv_dealloc_pd(over) == (is_rnic ? 0 : EBUSY));
	CHECK(ibv_dealloc_pd(under) == EBUSY);
	CHECK(ibv_dereg_mr(mr) == 0);
	if (!is_rnic)
		CHECK(ibv_dealloc_pd(over) == 0);
	CHECK(ibv_dealloc_pd(under) == 0);
}

int main(void)
{
	open_context();
	is_rnic = context->device->transport_type == IBV_TRANSPORT_IWARP;
	domain_first();
	moved();
	parent();
	/* A queue pair keeps its domain. */
	meet();
	CHECK(ibv_dealloc_pd(pd) == EBUSY);
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
