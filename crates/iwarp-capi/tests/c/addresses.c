/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Addresses that come and go while the device is open: what a program is told of its GID table, and
 * what it may make address handles of, is as the host is at that moment. */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include "check.h"

static const unsigned char ip[4] = { 10, 9, 0, 1 };
static struct ibv_context *context;
static struct ibv_pd *pd;

/* The place of ip in the GID table, or -1. */
static int place(void)
{
	union ibv_gid gid;

	for (int index = 0; ibv_query_gid(context, 1, index, &gid) == 0; index++) {
		if (memcmp(gid.raw + 12, ip, 4) == 0)
			return index;
	}
	CHECK(errno == EINVAL);
	return -1;
}

static struct ibv_ah *handle(int index)
{
	struct ibv_ah_attr attr = {
		.grh = { .sgid_index = index, .hop_limit = 64 }, .is_global = 1, .port_num = 1,
	};

	memset(attr.grh.dgid.raw + 10, 0xff, 2);
	memcpy(attr.grh.dgid.raw + 12, ip, 4);
	errno = 0;
	return ibv_create_ah(pd, &attr);
}

/* The headers of a datagram that came from the address to itself. */
static struct ibv_grh headers(void)
{
	struct ibv_grh grh;
	unsigned char *v4 = (unsigned char *)&grh + sizeof(grh) - 20;

	memset(&grh, 0, sizeof(grh));
	v4[0] = 0x45;
	v4[3] = 60;
	v4[8] = 64;
	v4[9] = 17;
	memcpy(v4 + 12, ip, 4);
	memcpy(v4 + 16, ip, 4);
	return grh;
}

static void change(const char *command)
{
	CHECK(system(command) == 0);
}

int main(void)
{
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_grh grh = headers();
	struct ibv_gid_entry entry;
	struct ibv_device **devices;
	struct ibv_ah *old, *other;
	struct ibv_ah_attr attr;
	int index;

	if (!own_network()) {
		fprintf(stderr, "no network of its own: left out\n");
		return 0;
	}
	devices = ibv_get_device_list(NULL);
	CHECK(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	CHECK(context);
	ibv_free_device_list(devices);
	pd = ibv_alloc_pd(context);
	CHECK(pd && place() == -1);
	for (int round = 0; round < 3; round++) {
		CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == -1 && errno == EINVAL);
		change("ip addr add 10.9.0.1/32 dev lo");
		/* Places are kept. */
		CHECK(place() >= 0 && (round == 0 || place() == index));
		index = place();
		CHECK(ibv_query_gid_ex(context, 1, index, &entry, 0) == 0);
		CHECK(memcmp(entry.gid.raw + 12, ip, 4) == 0);
		old = handle(index);
		CHECK(old);
		CHECK(ibv_init_ah_from_wc(context, 1, &wc, &grh, &attr) == 0);
		CHECK(attr.grh.sgid_index == index);
		other = ibv_create_ah_from_wc(pd, &wc, &grh, 1);
		CHECK(other);
		change("ip addr del 10.9.0.1/32 dev lo");
		CHECK(place() == -1);
		CHECK(ibv_query_gid_ex(context, 1, index, &entry, 0) != 0);
		CHECK(!handle(index) && errno == EINVAL);
		CHECK(!ibv_create_ah_from_wc(pd, &wc, &grh, 1) && errno == EINVAL);
		/* Objects that were made before are there. */
		CHECK(ibv_destroy_ah(old) == 0 && ibv_destroy_ah(other) == 0);
	}
	CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
	return 0;
}
