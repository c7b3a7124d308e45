/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Receives that are too short, or just long enough, or not there. */
#include "misuse.h"

static void short_wrong(void)
{
	start();
	/* short_wrong says: does not fit receive 0x1 of 4 bytes */
	receive(&b, 1, 0, 4); /* short_wrong: here */
	send_of(part(&a, 0, 8));
	CHECK(take(&b).status != IBV_WC_SUCCESS);
	end();
}

static void exact_right(void)
{
	start();
	receive(&b, 1, 0, 8);
	send_of(part(&a, 0, 8));
	CHECK(take(&b).status == IBV_WC_SUCCESS && take(&a).status == IBV_WC_SUCCESS);
	end();
}

/* There is one receive for two messages. */
static void missing_wrong(void)
{
	rnr_retry = 1;
	start();
	receive(&b, 1, 0, 8);
	send_of(part(&a, 0, 8));
	CHECK(take(&b).status == IBV_WC_SUCCESS && take(&a).status == IBV_WC_SUCCESS);
	/* missing_wrong says: the peer has posted no receive for request */
	send_of(part(&a, 0, 8)); /* missing_wrong: here */
	CHECK(take(&a).status == IBV_WC_RNR_RETRY_EXC_ERR);
	end();
}

/* It comes while the message is sent again. */
static void late_right(void)
{
	start();
	send_of(part(&a, 0, 8));
	receive(&b, 1, 0, 8);
	CHECK(take(&b).status == IBV_WC_SUCCESS && take(&a).status == IBV_WC_SUCCESS);
	end();
}

MAIN({ "short_wrong", short_wrong }, { "exact_right", exact_right },
     { "missing_wrong", missing_wrong }, { "late_right", late_right })
