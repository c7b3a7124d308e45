/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The process exits with a region registered. */
#include "pair.h"

static char memory[4096];

int main(void)
{
	open_context();
	CHECK(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)); /* : here */
	return 0;
}
