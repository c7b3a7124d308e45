/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A thread whose cancellation is due opens a device and registers memory. It goes at the next wait. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include "check.h"

static atomic_int registered;
/* Of the thread that goes without closing it. */
static struct ibv_context *left_open;

static void *use_device(void *unused)
{
	static char memory[4096];
	struct ibv_async_event event;

	CHECK(pthread_cancel(pthread_self()) == 0);
	struct ibv_device **devices = ibv_get_device_list(NULL);
	CHECK(devices && devices[0]);
	struct ibv_context *context = ibv_open_device(devices[0]);
	CHECK(context);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	/* Random numbers for the keys come from the system for many regions at a time. */
	for (int i = 0; i < 300; i++) {
		struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr && ibv_dereg_mr(mr) == 0);
		atomic_fetch_add(&registered, 1);
	}
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
	left_open = ibv_open_device(devices[0]);
	CHECK(left_open);
	ibv_free_device_list(devices);
	ibv_get_async_event(left_open, &event);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, use_device, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK(atomic_load(&registered) == 300);
	CHECK(ibv_close_device(left_open) == 0);
	return 0;
}
