/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The library is loaded, asked for symbols by version, and unloaded, three times. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "check.h"

static void *symbol(void *library, const char *name, const char *version)
{
	return dlvsym(library, name, version);
}

int main(void)
{
	for (int i = 0; i < 3; i++) {
		void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
		if (!verbs)
			fprintf(stderr, "%s\n", dlerror());
		CHECK(verbs);
		void *(*get_list)(int *) = symbol(verbs, "ibv_get_device_list", "IBVERBS_1.1");
		void *(*old_list)(int *) = symbol(verbs, "ibv_get_device_list", "IBVERBS_1.0");
		CHECK(get_list && old_list && get_list != old_list);
		CHECK(dlsym(verbs, "ibv_get_device_list") == (void *)get_list);
		CHECK(!symbol(verbs, "ibv_get_device_list", "IBVERBS_1.2"));
		CHECK(symbol(verbs, "ibv_query_gid_type", "IBVERBS_PRIVATE_34"));
		CHECK(symbol(verbs, "verbs_register_driver_59", "IBVERBS_PRIVATE_59"));
		CHECK(symbol(verbs, "ibv_query_port_speed", "IBVERBS_1.16"));
		CHECK(symbol(verbs, "ibv_rate_to_mult", "IBVERBS_1.0"));

		int count = -1;
		void **(*list)(int *) = (void **(*)(int *))get_list;
		void (*free_list)(void **) = dlsym(verbs, "ibv_free_device_list");
		void *(*open_device)(void *) = dlsym(verbs, "ibv_open_device");
		int (*close_device)(void *) = dlsym(verbs, "ibv_close_device");
		void **devices = list(&count);
		CHECK(devices && count == 1 && devices[0] && !devices[1]);
		void *context = open_device(devices[0]);
		CHECK(context);
		CHECK(close_device(context) == 0);
		free_list(devices);

		/* Programs of 2006 see no device. */
		count = -1;
		void **(*older)(int *) = (void **(*)(int *))old_list;
		void (*older_free)(void **) = symbol(verbs, "ibv_free_device_list", "IBVERBS_1.0");
		devices = older(&count);
		CHECK(devices && count == 0 && !devices[0]);
		older_free(devices);

		void *cm = dlopen("librdmacm.so.1", RTLD_NOW);
		CHECK(cm && symbol(cm, "rdma_create_id", "RDMACM_1.0"));
		CHECK(dlclose(cm) == 0 && dlclose(verbs) == 0);
	}
	return 0;
}
