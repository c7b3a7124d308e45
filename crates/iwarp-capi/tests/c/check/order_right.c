/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Objects go in the right order, twice, so that addresses are used again. */
#include "pair.h"

int main(void)
{
	open_context();
	for (int i = 0; i < 2; i++) {
		meet();
		unmake(&a);
		unmake(&b);
	}
	close_context();
	return 0;
}
