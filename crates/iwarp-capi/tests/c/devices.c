/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Devices that the user has named: one like a RoCE card on an interface that is not lo, and one like an
 * RNIC on lo. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include "check.h"

/* Not in the header of those who only use it. */
int ibv_read_sysfs_file(const char *, const char *, char *, size_t);

static int is_named(struct ibv_device *device, const char *name)
{
	return !strcmp(ibv_get_device_name(device), name);
}

/* The table of the device has lo's addresses only, in places of its own. */
static void check_table(struct ibv_context *context)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, all[64];
	union ibv_gid gid, expected;
	int n;

	memset(&expected, 0, sizeof(expected));
	expected.raw[10] = expected.raw[11] = 0xff;
	expected.raw[12] = 127;
	expected.raw[15] = 1;
	CHECK(!ibv_query_port(context, 1, &port));
	CHECK(port.gid_tbl_len >= 1);
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	CHECK(!memcmp(&gid, &expected, sizeof(gid)));
	n = ibv_query_gid_table(context, all, 64, 0);
	CHECK(n == port.gid_tbl_len);
	for (int i = 0; i < n; i++) {
		CHECK(!ibv_query_gid_ex(context, 1, i, &entry, 0));
		CHECK(entry.ndev_ifindex == if_nametoindex("lo"));
		CHECK(!memcmp(&entry.gid, &all[i].gid, sizeof(gid)));
	}
}

/* Each is shown as what it is: by the list, the port, the table and the files. */
static void check_kind(struct ibv_context *context, int is_rnic)
{
	struct ibv_device *device = context->device;
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	struct ibv_device_attr attr;
	/* Newer than many headers. */
	int (*query_speed)(struct ibv_context *, uint32_t, uint64_t *);
	uint64_t speed;
	char text[64];

	CHECK(device->node_type == (is_rnic ? IBV_NODE_RNIC : IBV_NODE_CA));
	CHECK(device->transport_type == (is_rnic ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB));
	CHECK(!ibv_query_port(context, 1, &port));
	/* 4X EDR, and 4X QDR. */
	CHECK(port.active_width == 2 && port.active_speed == (is_rnic ? 32 : 4));
	CHECK((query_speed = dlsym(RTLD_DEFAULT, "ibv_query_port_speed")));
	CHECK(!query_speed(context, 1, &speed) && speed == (is_rnic ? 1000 : 400));
	CHECK(!ibv_query_device(context, &attr));
	CHECK(!!(attr.device_cap_flags & IBV_DEVICE_RC_RNR_NAK_GEN) == !is_rnic);
	CHECK(!ibv_query_gid_ex(context, 1, 0, &entry, 0));
	CHECK(entry.gid_type == (is_rnic ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2));
	CHECK(ibv_read_sysfs_file(device->ibdev_path, "ports/1/gid_attrs/types/0", text, 64) > 0);
	CHECK(!strcmp(text, is_rnic ? "IB/RoCE v1" : "RoCE v2"));
}

/* The connection manager is on the device that has the address. */
static void check_id(struct ibv_pd *others)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct rdma_conn_param param = { 0 };
	struct ibv_qp *qp;
	struct ibv_cq *own;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 1, 1, 1, 1, 0 } };

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(is_named(id->verbs->device, "rdma-lo"));
	CHECK(id->pd && id->pd->context == id->verbs);
	CHECK(rdma_create_qp(id, others, &init) == -1 && errno == EINVAL);
	CHECK(!rdma_create_qp(id, NULL, &init));
	CHECK(id->qp->context == id->verbs);
	rdma_destroy_qp(id);
	/* A queue pair that the program has made itself, on the other device. */
	init.send_cq = init.recv_cq = ibv_create_cq(others->context, 2, NULL, NULL, 0);
	CHECK(init.send_cq && (own = ibv_create_cq(id->verbs, 2, NULL, NULL, 0)));
	init.recv_cq = own;
	errno = 0;
	CHECK(!ibv_create_qp(others, &init) && errno == EINVAL);
	CHECK(rdma_create_qp(id, NULL, &init) == -1 && errno == EINVAL);
	init.recv_cq = init.send_cq;
	CHECK(!ibv_destroy_cq(own));
	CHECK((qp = ibv_create_qp(others, &init)));
	param.qp_num = qp->qp_num;
	CHECK(!rdma_resolve_route(id, 1000));
	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
	CHECK(!rdma_ack_cm_event(event));
	CHECK(rdma_connect(id, &param) == -1 && errno == EINVAL);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(init.send_cq));
	CHECK(!rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

int main(void)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context **contexts, *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr[2];
	char text[64];

	CHECK(list && count == 2 && !list[2]);
	CHECK(is_named(list[0], "mlx5_0") && is_named(list[1], "rdma-lo"));
	CHECK(!strcmp(list[1]->dev_name, "uverbs1"));
	CHECK(ibv_get_device_index(list[1]) == 1);
	CHECK(ibv_get_device_guid(list[0]) != ibv_get_device_guid(list[1]));
	for (int i = 0; i < 2; i++) {
		context = ibv_open_device(list[i]);
		CHECK(context && context->device == list[i]);
		CHECK(!ibv_query_device(context, &attr[i]));
		CHECK(attr[i].node_guid == ibv_get_device_guid(list[i]));
		if (i)
			check_table(context);
		check_kind(context, i);
		CHECK(!ibv_close_device(context));
	}
	CHECK(attr[0].sys_image_guid == attr[1].sys_image_guid);
	CHECK(ibv_read_sysfs_file(list[1]->ibdev_path, "ports/1/gid_attrs/ndevs/0", text, 64) == 2);
	CHECK(!strcmp(text, "lo"));
	CHECK(ibv_read_sysfs_file("/sys/class/infiniband/iwarp0", "fw_ver", text, 64) == -1);
	ibv_free_device_list(list);

	contexts = rdma_get_devices(&count);
	CHECK(contexts && count == 2 && !contexts[2]);
	CHECK(is_named(contexts[1]->device, "rdma-lo"));
	pd = ibv_alloc_pd(contexts[0]);
	rdma_free_devices(contexts);
	CHECK(pd);
	check_id(pd);
	CHECK(!ibv_dealloc_pd(pd));
	return 0;
}
