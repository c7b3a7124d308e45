/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Objects go in the right order, twice, so that addresses are used again. */
#include "pair.h"

int main(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 64 };
	struct ibv_dm *dm;

	open_context();
	dm = ibv_alloc_dm(context, &attr);
	CHECK(dm && ibv_free_dm(dm) == 0);
	for (int i = 0; i < 2; i++) {
		meet();
		unmake(&a);
		unmake(&b);
	}
	close_context();
	return 0;
}
