/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Objects that end too early, twice or never. */
#include "misuse.h"

static char memory[64];

static void domain_wrong(void)
{
	open_context(); /* domain_wrong: there */
	meet();
	CHECK(ibv_dealloc_pd(pd) == EBUSY); /* domain_wrong: here */
	end();
}

static void channel_wrong(void)
{
	open_context(); /* channel_wrong: there */
	meet();
	CHECK(ibv_destroy_comp_channel(channel) == EBUSY); /* channel_wrong: here */
	end();
}

static void left_wrong(void)
{
	start(); /* left_wrong: here */
	exit(0);
}

/* A call that is refused before it looks at the domain. */
static void gone_wrong(void)
{
	struct ibv_pd *other;

	open_context();
	other = ibv_alloc_pd(context);
	CHECK(other && ibv_dealloc_pd(other) == 0); /* gone_wrong: there */
	CHECK(!ibv_create_ah(other, NULL)); /* gone_wrong: here */
	close_context();
}

static void order_right(void)
{
	struct ibv_mr *mr;

	open_context();
	mr = registered(memory, sizeof memory);
	CHECK(ibv_dereg_mr(mr) == 0);
	meet();
	end();
}

MAIN({ "domain_wrong", domain_wrong }, { "channel_wrong", channel_wrong },
     { "left_wrong", left_wrong }, { "gone_wrong", gone_wrong }, { "order_right", order_right })
