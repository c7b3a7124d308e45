/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A thread that waits for completions is cancelled, a thousand times. The queue works on. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include "check.h"

static struct ibv_comp_channel *channel;
static struct ibv_context *context;
static atomic_int waiting;

static void *wait_for_completion(void *unused)
{
	struct ibv_cq *cq;
	void *of;

	atomic_store(&waiting, 1);
	ibv_get_cq_event(channel, &cq, &of);
	return NULL;
}

static void *wait_for_event(void *unused)
{
	struct ibv_async_event event;

	atomic_store(&waiting, 1);
	ibv_get_async_event(context, &event);
	return NULL;
}

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	CHECK(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	CHECK(context);
	channel = ibv_create_comp_channel(context);
	CHECK(channel);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, channel, 0);
	CHECK(cq && ibv_req_notify_cq(cq, 0) == 0);
	for (int i = 0; i < 1000; i++) {
		void *(*work)(void *) = i % 4 ? wait_for_completion : wait_for_event;
		pthread_t thread;
		void *result;

		atomic_store(&waiting, 0);
		CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
		/* Half of them before they wait, most likely. */
		while (i % 2 && !atomic_load(&waiting))
			usleep(10);
		CHECK(pthread_cancel(thread) == 0);
		CHECK(pthread_join(thread, &result) == 0);
		CHECK(result == PTHREAD_CANCELED);
	}
	CHECK(ibv_destroy_cq(cq) == 0);
	CHECK(ibv_destroy_comp_channel(channel) == 0);
	CHECK(ibv_close_device(context) == 0);
	ibv_free_device_list(devices);
	return 0;
}
