/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A device with two ports: the first on an interface that is not lo, whose name the environment
 * has as OTHER, the second on lo. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <rdma/rdma_cma.h>
#include "pair.h"

/* Not in the header of those who only use it. */
int ibv_read_sysfs_file(const char *, const char *, char *, size_t);

static union ibv_gid localhost;

static void check_device(void)
{
	struct ibv_device_attr_ex attr_ex;
	struct ibv_device_attr attr;

	CHECK(!ibv_query_device(context, &attr) && attr.phys_port_cnt == 2);
	CHECK(!ibv_query_device_ex(context, NULL, &attr_ex) && attr_ex.phys_port_cnt_ex == 2);
}

/* Each has its table, its LID and its files. */
static void check_port(uint32_t number, const char *interface)
{
	const char *folder = context->device->ibdev_path;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid first;
	char name[64], text[64];
	__be16 pkey;

	CHECK(!ibv_query_port(context, number, &port));
	CHECK(port.state == IBV_PORT_ACTIVE && port.gid_tbl_len >= 1);
	CHECK(!ibv_query_gid(context, number, 0, &first));
	CHECK(!memcmp(&first, &localhost, sizeof(first)) == (number == 2));
	CHECK(port.lid == ntohs(*(uint16_t *)&first.raw[14]));
	for (int i = 0; i < port.gid_tbl_len; i++) {
		CHECK(!ibv_query_gid_ex(context, number, i, &entry, 0));
		CHECK(entry.port_num == number && entry.gid_index == (uint32_t)i);
		CHECK(entry.ndev_ifindex == if_nametoindex(interface));
	}
	CHECK(ibv_query_gid(context, number, port.gid_tbl_len, &first) == -1);
	CHECK(!ibv_query_pkey(context, number, 0, &pkey) && pkey == 0xffff);
	CHECK(!ibv_get_pkey_index(context, number, pkey));
	snprintf(name, sizeof(name), "ports/%u/gid_attrs/ndevs/0", number);
	CHECK(ibv_read_sysfs_file(folder, name, text, sizeof(text)) > 0);
	CHECK(!strcmp(text, interface));
}

static void check_missing(uint32_t number)
{
	struct ibv_port_attr port;
	union ibv_gid first;
	char name[64];
	__be16 pkey;

	CHECK(ibv_query_port(context, number, &port) == EINVAL);
	CHECK(ibv_query_gid(context, number, 0, &first) == -1 && errno == EINVAL);
	CHECK(ibv_query_pkey(context, number, 0, &pkey) == -1);
	snprintf(name, sizeof(name), "ports/%u/state", number);
	CHECK(ibv_read_sysfs_file(context->device->ibdev_path, name, name, sizeof(name)) == -1);
}

/* The table of all ports names them. */
static void check_table(const char *other)
{
	struct ibv_gid_entry all[64];
	struct ibv_port_attr one, two;
	ssize_t n = ibv_query_gid_table(context, all, 64, 0);

	CHECK(!ibv_query_port(context, 1, &one) && !ibv_query_port(context, 2, &two));
	CHECK(n == one.gid_tbl_len + two.gid_tbl_len);
	for (ssize_t i = 0; i < n; i++) {
		CHECK(all[i].port_num == (i < one.gid_tbl_len ? 1 : 2));
		CHECK(all[i].ndev_ifindex ==
		      if_nametoindex(all[i].port_num == 1 ? other : "lo"));
	}
}

static void check_handles(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 2, .grh = { .dgid = localhost } };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	CHECK(ah && !ibv_destroy_ah(ah));
	/* By its LID within the port's network. */
	attr = (struct ibv_ah_attr){ .dlid = 1, .port_num = 2 };
	CHECK((ah = ibv_create_ah(pd, &attr)) && !ibv_destroy_ah(ah));
	attr.port_num = 3;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
}

/* On each port two queue pairs meet, and neither leaves by the other port. */
static void check_pair(uint8_t number)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 3 };
	int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .num_sge = 1,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_init_attr init;
	struct ibv_sge sge;

	port_num = number;
	CHECK(!ibv_query_gid(context, number, 0, &gid));
	make(&a, NULL);
	make(&b, NULL);
	CHECK(ibv_modify_qp(a.qp, &attr, to_init) == EINVAL);
	step(a.qp, b.qp, IBV_QPS_INIT);
	step(b.qp, a.qp, IBV_QPS_INIT);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = b.qp->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 3 - number, .grh = { .dgid = gid } },
	};
	CHECK(ibv_modify_qp(a.qp, &attr, to_rtr) == EINVAL && a.qp->state == IBV_QPS_INIT);
	for (int state = IBV_QPS_RTR; state <= IBV_QPS_RTS; state++) {
		step(a.qp, b.qp, state);
		step(b.qp, a.qp, state);
	}
	receive(&b, 1, 0, 64);
	sge = part(&a, 0, 7);
	wr.sg_list = &sge;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	CHECK(take(&a).status == IBV_WC_SUCCESS && take(&b).byte_len == 7);
	CHECK(!ibv_query_qp(a.qp, &attr, IBV_QP_PORT | IBV_QP_AV, &init));
	CHECK(attr.port_num == number && attr.ah_attr.port_num == number);
	unmake(&a);
	unmake(&b);
}

/* The connection manager is on the port that has the address. */
static void check_id(struct rdma_event_channel *ids, uint32_t addr, uint8_t number)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int mask;

	to.sin_addr.s_addr = addr;
	CHECK(!rdma_create_id(ids, &id, NULL, RDMA_PS_TCP));
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000));
	CHECK(!rdma_get_cm_event(ids, &event));
	CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && !rdma_ack_cm_event(event));
	CHECK(id->port_num == number && id->verbs);
	CHECK(!rdma_create_qp(id, NULL, &init));
	CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_PORT, &init) && attr.port_num == number);
	attr.qp_state = IBV_QPS_INIT;
	CHECK(!rdma_init_qp_attr(id, &attr, &mask));
	CHECK(mask & IBV_QP_PORT && attr.port_num == number);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!rdma_init_qp_attr(id, &attr, &mask));
	CHECK(attr.ah_attr.port_num == number);
	rdma_destroy_qp(id);
	CHECK(!rdma_destroy_id(id));
}

int main(void)
{
	const char *other = getenv("OTHER");
	struct rdma_event_channel *ids;
	union ibv_gid first;
	uint32_t addr;

	CHECK(other);
	localhost.raw[10] = localhost.raw[11] = 0xff;
	localhost.raw[12] = 127;
	localhost.raw[15] = 1;
	open_context();
	check_device();
	check_port(1, other);
	check_port(2, "lo");
	check_missing(0);
	check_missing(3);
	check_table(other);
	check_handles();
	check_pair(1);
	check_pair(2);
	CHECK((ids = rdma_create_event_channel()));
	check_id(ids, htonl(INADDR_LOOPBACK), 2);
	CHECK(!ibv_query_gid(context, 1, 0, &first));
	memcpy(&addr, &first.raw[12], sizeof(addr));
	check_id(ids, addr, 1);
	rdma_destroy_event_channel(ids);
	return 0;
}
