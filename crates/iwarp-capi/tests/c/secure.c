/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Whether the process has more rights than its user, and what the device is called. The library is
 * the one beside the program, as the dynamic linker takes no path from such a user. */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int main(void)
{
	char path[PATH_MAX] = { 0 };
	struct ibv_device **(*list)(int *);
	struct ibv_context *(*open)(struct ibv_device *);
	struct ibv_device **devices;
	int count = 0;

	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
		return 1;
	strcpy(strrchr(path, '/'), "/libibverbs.so.1");
	void *library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	*(void **)&list = dlsym(library, "ibv_get_device_list");
	*(void **)&open = dlsym(library, "ibv_open_device");
	devices = list(&count);
	const char *name = devices && count && open(devices[0]) ? devices[0]->name : "none";
	printf("secure %lu device %s\n", getauxval(AT_SECURE), name);
	return 0;
}
