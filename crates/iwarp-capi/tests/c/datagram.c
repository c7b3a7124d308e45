/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Datagram queue pairs where the port is taken, and when it is free again. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include "pair.h"

static struct ibv_qp_init_attr init = { .cap = { 2, 2, 1, 1, 0 } };
static struct ibv_qp_attr to_init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };
enum { TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT };

static struct ibv_qp *create_qp(enum ibv_qp_type type)
{
	init.qp_type = type;
	errno = 0;
	return ibv_create_qp(pd, &init);
}

/* A number that nothing else has, which is all that UCX's connection manager wants. */
static void mere_number(void)
{
	struct ibv_qp_init_attr told;
	struct ibv_qp_attr attr;
	struct ibv_sge sge = { 0 };
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv = NULL;
	struct ibv_qp *one = create_qp(IBV_QPT_UD), *other = create_qp(IBV_QPT_UD);

	CHECK(one && other && one->qp_num && one->qp_num != other->qp_num);
	CHECK(one->qp_type == IBV_QPT_UD && one->state == IBV_QPS_RESET);
	CHECK(ibv_query_qp(one, &attr, IBV_QP_STATE, &told) == 0);
	CHECK(attr.qp_state == IBV_QPS_RESET && told.qp_type == IBV_QPT_UD);
	CHECK(ibv_modify_qp(one, &to_init, TO_INIT | IBV_QP_QKEY) == EOPNOTSUPP);
	CHECK(one->state == IBV_QPS_RESET);
	CHECK(ibv_post_send(one, &send, &bad_send) == EINVAL && bad_send == &send);
	CHECK(ibv_post_recv(one, &recv, &bad_recv) == EINVAL && bad_recv == &recv);
	CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0);
}

int main(void)
{
	struct sockaddr_in6 all = { .sin6_family = AF_INET6, .sin6_port = htons(4791) };
	struct ibv_device_attr about;
	int other;

	/* So that no other process is in the way, nor this one in theirs. */
	if (!own_network()) {
		fprintf(stderr, "not permitted\n");
		return 0;
	}
	other = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(bind(other, (struct sockaddr *)&all, sizeof(all)) == 0);

	open_context();
	CHECK(ibv_query_device(context, &about) == 0);
	init.send_cq = init.recv_cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(init.send_cq);
	CHECK(!create_qp(IBV_QPT_UC) && errno == EADDRINUSE);
	if (context->device->transport_type == IBV_TRANSPORT_IWARP) {
		CHECK(!create_qp(IBV_QPT_UD) && errno == EADDRINUSE);
		/* The processors' own instructions see it as well. */
		CHECK(about.atomic_cap == IBV_ATOMIC_GLOB);
	} else {
		mere_number();
		CHECK(about.atomic_cap == IBV_ATOMIC_HCA);
	}

	close(other);
	struct ibv_qp *uc = create_qp(IBV_QPT_UC), *ud = create_qp(IBV_QPT_UD);
	CHECK(uc && ud && uc->qp_num != ud->qp_num && uc->qp_num >> 18 == ud->qp_num >> 18);
	CHECK(ibv_modify_qp(ud, &to_init, TO_INIT | IBV_QP_QKEY) == 0);
	CHECK(ibv_modify_qp(uc, &to_init, TO_INIT | IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(ibv_destroy_qp(uc) == 0 && ibv_destroy_qp(ud) == 0);
	CHECK(ibv_destroy_cq(init.send_cq) == 0);
	close_context();
	return 0;
}
