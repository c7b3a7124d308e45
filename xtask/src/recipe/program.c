/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A verbs program for the pages: two queue pairs of one process, messages between them, each compared.
 * It gives back all that it takes, so that leak checkers have nothing to say about it. */
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 65536, ROUNDS = 20 };

#define NEED(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

	NEED(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS));
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer, union ibv_gid gid)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 8 } },
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12 };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
				   .rnr_retry = 7, .max_rd_atomic = 1 };

	NEED(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	NEED(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC));
}

int main(void)
{
	int count = 0;
	struct ibv_context **contexts = rdma_get_devices(&count);

	NEED(contexts && count > 0);
	struct ibv_context *context = contexts[0];
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	char *memory = calloc(2, SIZE);
	NEED(pd && cq && memory);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE);
	NEED(mr);

	union ibv_gid gid;
	struct ibv_qp *qp[2];
	NEED(!ibv_query_gid(context, 1, 0, &gid));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
						 .cap = { 4, 4, 1, 1, 0 } };

		NEED(qp[i] = ibv_create_qp(pd, &attr));
		to_init(qp[i]);
	}
	connect_to(qp[0], qp[1], gid);
	connect_to(qp[1], qp[0], gid);

	for (int round = 1; round <= ROUNDS; round++) {
		struct ibv_sge from = { (uintptr_t)memory, SIZE, mr->lkey };
		struct ibv_sge to = { (uintptr_t)memory + SIZE, SIZE, mr->lkey };
		struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
					    .send_flags = IBV_SEND_SIGNALED }, *bad_send;
		struct ibv_recv_wr receive = { .sg_list = &to, .num_sge = 1 }, *bad_receive;

		memset(memory, round, SIZE);
		NEED(!ibv_post_recv(qp[1], &receive, &bad_receive));
		NEED(!ibv_post_send(qp[0], &send, &bad_send));
		for (int done = 0; done < 2;) {
			struct ibv_wc wc;
			int found = ibv_poll_cq(cq, 1, &wc);

			NEED(found >= 0 && (!found || wc.status == IBV_WC_SUCCESS));
			done += found;
		}
		NEED(!memcmp(memory, memory + SIZE, SIZE));
	}

	NEED(!ibv_destroy_qp(qp[0]) && !ibv_destroy_qp(qp[1]) && !ibv_destroy_cq(cq));
	NEED(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
	printf("%d messages of %d bytes on %s\n", ROUNDS, SIZE, ibv_get_device_name(context->device));
	rdma_free_devices(contexts);
	free(memory);
	return 0;
}
