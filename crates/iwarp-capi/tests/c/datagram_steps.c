/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Queue pairs over datagrams and address handles: how they are made, changed, asked and destroyed,
 * and what is refused. */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>
#include "pair.h"

enum {
	QKEY = 0x11223344,
	TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT,
	UC_TO_RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	TO_RTS = IBV_QP_STATE | IBV_QP_SQ_PSN,
};

static struct ibv_cq *cq;

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 2, 2, 32 }, .qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp && qp->qp_type == type && qp->state == IBV_QPS_RESET && qp->qp_num > 1);
	CHECK(init.cap.max_inline_data >= 32);
	CHECK(!ibv_qp_to_qp_ex(qp));
	return qp;
}

static struct ibv_qp_attr ask(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(init.qp_type == qp->qp_type && attr.qp_state == qp->state);
	return attr;
}

/* Each bit of a mask is needed, and `extra` may not come with it. */
static void needs(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, int extra)
{
	enum ibv_qp_state before = qp->state;

	for (int bit = IBV_QP_CUR_STATE; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
		if (mask & bit)
			CHECK(ibv_modify_qp(qp, attr, mask & ~bit) == EINVAL);
	}
	CHECK(ibv_modify_qp(qp, attr, mask | extra) == EINVAL);
	CHECK(qp->state == before && (enum ibv_qp_state)ask(qp).qp_state == before);
	CHECK(ibv_modify_qp(qp, attr, mask) == 0);
	CHECK(qp->state == attr->qp_state);
}

static void steps_of_ud(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_UD);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .sq_psn = 0x123456,
	};

	attr.port_num = 2;
	CHECK(ibv_modify_qp(qp, &attr, TO_INIT | IBV_QP_QKEY) == EINVAL);
	attr.port_num = 1;
	attr.pkey_index = 1;
	CHECK(ibv_modify_qp(qp, &attr, TO_INIT | IBV_QP_QKEY) == EINVAL);
	attr.pkey_index = 0;
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	needs(qp, &attr, TO_INIT | IBV_QP_QKEY, IBV_QP_ACCESS_FLAGS);
	/* Attributes may be set anew. */
	attr.qkey = 7;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_QKEY) == 0 && ask(qp).qkey == 7);
	attr.qkey = QKEY;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	needs(qp, &attr, IBV_QP_STATE, IBV_QP_AV);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_QKEY) == EINVAL);
	attr.qp_state = IBV_QPS_RTS;
	needs(qp, &attr, TO_RTS, IBV_QP_TIMEOUT);
	attr.qkey = 8;
	attr.cur_qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_QKEY | IBV_QP_CUR_STATE) == EINVAL);
	attr.cur_qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_QKEY | IBV_QP_CUR_STATE) == 0);
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_RATE_LIMIT) == EOPNOTSUPP);
	struct ibv_qp_attr now = ask(qp);
	CHECK(now.qkey == 8 && now.sq_psn == 0x123456 && now.port_num == 1);
	CHECK(now.cap.max_send_wr == 8 && now.cur_qp_state == IBV_QPS_RTS);
	attr.qp_state = IBV_QPS_SQD;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_ERR;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0 && ask(qp).qp_state == IBV_QPS_ERR);
	attr.qp_state = IBV_QPS_RESET;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0 && qp->state == IBV_QPS_RESET);
	/* Once more from the start. */
	attr.qp_state = IBV_QPS_INIT;
	CHECK(ibv_modify_qp(qp, &attr, TO_INIT | IBV_QP_QKEY) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

static void steps_of_uc(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_UC);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_512, .dest_qp_num = 0x1234, .rq_psn = 0xab0001, .sq_psn = 5,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = gid, .hop_limit = 9, .traffic_class = 3, .flow_label = 4 },
		},
	};

	needs(qp, &attr, TO_INIT | IBV_QP_ACCESS_FLAGS, IBV_QP_QKEY);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr, UC_TO_RTR | IBV_QP_MIN_RNR_TIMER) == EINVAL);
	/* Nothing of a step that is refused is set. */
	attr.ah_attr.grh.sgid_index = 200;
	CHECK(ibv_modify_qp(qp, &attr, UC_TO_RTR) == EINVAL);
	CHECK(ask(qp).dest_qp_num == 0 && qp->state == IBV_QPS_INIT);
	attr.ah_attr.grh.sgid_index = 0;
	attr.ah_attr.is_global = 0;
	CHECK(ibv_modify_qp(qp, &attr, UC_TO_RTR) == EINVAL);
	attr.ah_attr.is_global = 1;
	needs(qp, &attr, UC_TO_RTR, IBV_QP_MAX_DEST_RD_ATOMIC);
	attr.qp_state = IBV_QPS_RTS;
	needs(qp, &attr, TO_RTS, IBV_QP_RETRY_CNT);
	struct ibv_qp_attr now = ask(qp);
	CHECK(now.path_mtu == IBV_MTU_512 && now.dest_qp_num == 0x1234 && now.rq_psn == 0xab0001);
	CHECK(now.qp_access_flags == IBV_ACCESS_REMOTE_WRITE && now.sq_psn == 5);
	CHECK(!memcmp(&now.ah_attr.grh.dgid, &gid, sizeof(gid)) && now.ah_attr.is_global == 1);
	CHECK(now.ah_attr.grh.hop_limit == 9 && now.ah_attr.grh.traffic_class == 3);
	attr.qp_access_flags = 0;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS) == 0);
	CHECK(ask(qp).qp_access_flags == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* Operations that a type does not have. */
static void operations(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 2, 2, 32 }, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	};
	const uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	const struct {
		enum ibv_qp_type type;
		uint64_t has, lacks;
	} types[] = {
		{ IBV_QPT_UD, sends, writes },
		{ IBV_QPT_UC, sends | writes, IBV_QP_EX_WITH_RDMA_READ },
	};

	for (int i = 0; i < 2; i++) {
		init.qp_type = types[i].type;
		for (int bit = 0; bit < 10; bit++) {
			init.send_ops_flags = types[i].lacks & 1ull << bit;
			errno = 0;
			if (init.send_ops_flags)
				CHECK(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);
		}
		init.send_ops_flags = types[i].has;
		struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
		CHECK(qp && ibv_qp_to_qp_ex(qp) && ibv_destroy_qp(qp) == 0);
	}
	struct ibv_qp_init_attr xrc = {
		.send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1 }, .qp_type = IBV_QPT_XRC_SEND,
	};
	errno = 0;
	CHECK(!ibv_create_qp(pd, &xrc) && errno == EOPNOTSUPP);
}

static void handles(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } }, wrong;
	struct ibv_ah dummy = { .context = context, .handle = -1 }, *ah[100];
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_device_attr about;

	CHECK(ibv_query_device(context, &about) == 0 && about.max_ah >= 100);
	for (int i = 0; i < 100; i++) {
		ah[i] = ibv_create_ah(i % 2 ? other : pd, &attr);
		CHECK(ah[i] && ah[i]->context == context && ah[i]->pd == (i % 2 ? other : pd));
	}
	CHECK(ibv_dealloc_pd(other) == EBUSY);
	for (int i = 1; i < 100; i += 2)
		CHECK(ibv_destroy_ah(ah[i]) == 0);
	CHECK(ibv_dealloc_pd(other) == 0);
	CHECK(ibv_destroy_ah(ah[1]) == ENOENT && ibv_destroy_ah(&dummy) == ENOENT);
	dummy.handle = ah[0]->handle;
	CHECK(ibv_destroy_ah(&dummy) == ENOENT);
	dummy.context = NULL;
	CHECK(ibv_destroy_ah(&dummy) == ENOENT && ibv_destroy_ah(NULL) == EINVAL);
	for (int i = 0; i < 100; i += 2)
		CHECK(ibv_destroy_ah(ah[i]) == 0);

	for (int i = 0; i < 6; i++) {
		wrong = attr;
		switch (i) {
		case 0: wrong.port_num = 0; break;
		case 1: wrong.port_num = 2; break;
		case 2: wrong.is_global = 0; break;
		case 3: wrong.grh.sgid_index = 250; break;
		case 4: memset(&wrong.grh.dgid, 0, 16); break;
		/* Of the other family than the table's first entry. */
		case 5: wrong.grh.dgid.raw[10] ^= 0x55; break;
		}
		if (i == 5 && memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12))
			memcpy(wrong.grh.dgid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
		errno = 0;
		CHECK(!ibv_create_ah(pd, &wrong) && errno == EINVAL);
	}
	errno = 0;
	CHECK(!ibv_create_ah(pd, NULL) && errno == EINVAL);
}

/* An IPv4 header from 192.0.2.1 to the first entry of the table, and what is made of it. */
static void from_completions(void)
{
	unsigned char grh[40] = { 0 };
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH, .src_qp = 5, .sl = 2 };
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;

	if (memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12))
		return;
	memcpy(grh + 20, "\x45\x20\0\0\0\0\x40\0\x3f\x11\0\0\xc0\0\2\1", 16);
	memcpy(grh + 36, gid.raw + 12, 4);
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)grh, &attr) == 0);
	CHECK(attr.is_global == 1 && attr.port_num == 1 && attr.sl == 2);
	CHECK(attr.grh.sgid_index == 0 && attr.grh.flow_label == 0);
	CHECK(attr.grh.hop_limit == 0x3f && attr.grh.traffic_class == 0x20);
	CHECK(!memcmp(attr.grh.dgid.raw + 10, "\xff\xff\xc0\0\2\1", 6));
	ah = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)grh, 1);
	CHECK(ah && ibv_destroy_ah(ah) == 0);
	CHECK(!ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)grh, 2));

	/* An address that is not ours, a group, and no header at all. */
	grh[36] ^= 0x55;
	errno = 0;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)grh, &attr) == -1);
	CHECK(errno == EINVAL);
	memcpy(grh + 36, "\xe0\1\2\3", 4);
	errno = 0;
	CHECK(!ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)grh, 1) && errno == EINVAL);
	memset(grh, 0, sizeof(grh));
	errno = 0;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)grh, &attr) == -1);
	CHECK(errno == EPROTONOSUPPORT);

	/* Without a header there is no way to tell, and nobody asks. */
	wc.wc_flags = 0;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, NULL, &attr) == 0 && !attr.is_global);
}

static void groups(void)
{
	struct ibv_qp *ud = make_qp(IBV_QPT_UD), *uc = make_qp(IBV_QPT_UC);
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 224, 1, 2, 3 } };
	struct ibv_device_attr about;

	CHECK(ibv_query_device(context, &about) == 0);
	CHECK(ibv_attach_mcast(uc, &group, 0) == EINVAL && ibv_detach_mcast(uc, &group, 0) == EINVAL);
	CHECK(ibv_attach_mcast(ud, &gid, 0) == EINVAL && ibv_detach_mcast(ud, &group, 0) == EINVAL);
	if (about.max_mcast_grp == 0) {
		CHECK(ibv_attach_mcast(ud, &group, 0) == EOPNOTSUPP);
	} else {
		CHECK(ibv_attach_mcast(ud, &group, 0) == 0 && ibv_attach_mcast(ud, &group, 0) == 0);
		CHECK(ibv_destroy_qp(ud) == EBUSY && ibv_detach_mcast(ud, &group, 0) == 0);
		CHECK(ibv_detach_mcast(ud, &group, 0) == EINVAL);
	}
	CHECK(ibv_destroy_qp(ud) == 0 && ibv_destroy_qp(uc) == 0);
}

/* A child has no queue pair or address handle of its parent's, and may clean them up all the same. */
static void forked(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid } };
	struct ibv_qp_attr to_init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_qp *qp = make_qp(IBV_QPT_UD);
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .wr.ud = { .ah = ah } }, *bad;
	int status, mask = TO_INIT | IBV_QP_QKEY;
	pid_t child = fork();

	CHECK(ah && child != -1);
	if (child == 0) {
		CHECK(ibv_modify_qp(qp, &to_init, mask) != 0);
		CHECK(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
		CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(qp) == 0);
		/* Without what else an exit does: the threads are the parent's. */
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(ibv_modify_qp(qp, &to_init, mask) == 0);
	CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(qp) == 0);
}

int main(void)
{
	/* Groups are joined at all interfaces. */
	own_network();
	open_context();
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(cq);
	operations();
	handles();
	from_completions();
	groups();
	steps_of_ud();
	steps_of_uc();
	forked();
	CHECK(ibv_destroy_cq(cq) == 0);
	close_context();
	return 0;
}
