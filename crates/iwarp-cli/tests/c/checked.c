/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Allocates a protection domain, and deallocates it where it is told to. */
#include <infiniband/verbs.h>

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && devices[0] ? ibv_open_device(devices[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;

	if (!pd)
		return 1;
	ibv_free_device_list(devices);
	if (argc > 1)
		return ibv_dealloc_pd(pd) || ibv_close_device(context);
	return 0;
}
