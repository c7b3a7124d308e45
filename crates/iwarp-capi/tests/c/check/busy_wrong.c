/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A completion queue is destroyed before its queue pair. */
#include "pair.h"

int main(void)
{
	open_context();
	meet(); /* : there */
	CHECK(ibv_destroy_cq(a.cq) == EBUSY); /* : here */
	unmake(&a);
	unmake(&b);
	close_context();
	return 0;
}
