/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Each way in which memory is refused, for the operation that the first argument names. Says before
 * each what the lines of the two ends must tell: of the end that refuses (here) and of the other. */
#include <stdbool.h>
#include <sys/types.h>
#include "pair.h"

enum { PATIENCE = 10, LENGTH = 8 };

enum cause {
	UNKNOWN, DEREGISTERED, DOMAIN, BOUNDS, RIGHT, QP_RIGHT, INVALIDATED, WINDOW, UNALIGNED, CAUSES
};

static const char *const causes[CAUSES] = {
	"unknown", "deregistered", "domain", "bounds", "right", "queue pair's right",
	"invalidated", "window", "unaligned",
};

/* The end whose memory it is: of the peer, of the receive, of the request itself. */
enum whose { PEERS, RECEIVES, OWN };

static const struct operation {
	const char *name, *told;
	enum ibv_wr_opcode opcode;
	enum whose whose;
	/* The rights of a region that grants all but this. */
	int lacking;
} operations[] = {
	{ "write", "Write", IBV_WR_RDMA_WRITE, PEERS, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ },
	{ "read", "Read", IBV_WR_RDMA_READ, PEERS, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	{ "add", "FetchAdd", IBV_WR_ATOMIC_FETCH_AND_ADD, PEERS,
	  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ },
	{ "swap", "CompareSwap", IBV_WR_ATOMIC_CMP_AND_SWP, PEERS,
	  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	{ "receive", "Recv", IBV_WR_SEND, RECEIVES, IBV_ACCESS_REMOTE_READ },
	{ "gather", "Write", IBV_WR_RDMA_WRITE, OWN, 0 },
	{ "sink", "Read", IBV_WR_RDMA_READ, OWN, IBV_ACCESS_REMOTE_READ },
};

static const struct operation *operation;
static struct ibv_pd *other_pd;
static bool over_udp, as_rnic;

static bool is_atomic(void)
{
	return operation->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       operation->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static bool applies(enum cause cause)
{
	switch (cause) {
	case UNALIGNED:
		return is_atomic();
	case QP_RIGHT:
		return operation->whose == PEERS;
	case RIGHT:
		return operation->lacking != 0;
	default:
		return true;
	}
}

static void invalidate(struct side *side, uint32_t key)
{
	struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = key }, *bad;

	CHECK(ibv_post_send(side->qp, &wr, &bad) == 0);
	CHECK(take(side).status == IBV_WC_SUCCESS);
}

static void say_rights(int rights)
{
	static const char *const names[] = {
		"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC",
	};
	const char *before = ";rights=";

	for (int bit = 0; bit < 4; bit++) {
		if (rights >> bit & 1) {
			fprintf(stderr, "%s%s", before, names[bit]);
			before = " | ";
		}
	}
}

/* Takes completions until the receive `id` of that end has ended. */
static void await(struct side *side, uint64_t id)
{
	double end = now() + PATIENCE;
	struct ibv_wc wc;

	do {
		CHECK(now() < end);
	} while (ibv_poll_cq(side->cq, 1, &wc) != 1 || wc.wr_id != id);
	CHECK(wc.status != IBV_WC_SUCCESS);
}

static void provoke(enum cause cause)
{
	static uint64_t words[8] __attribute__((aligned(64)));
	int granted = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		      IBV_ACCESS_REMOTE_ATOMIC;
	struct side *owner = operation->whose == OWN ? &a : &b;
	struct ibv_sge good = part(&a, 0, LENGTH), spare = part(&a, 64, LENGTH);
	struct ibv_sge into = part(&b, 0, LENGTH);
	struct ibv_sge fault = { (uintptr_t)words, LENGTH, 0 };
	struct ibv_recv_wr of_b = { .wr_id = 8, .sg_list = &into, .num_sge = 1 }, *bad_recv;
	struct ibv_recv_wr of_a = { .wr_id = 9, .sg_list = &spare, .num_sge = 1 };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &good, .num_sge = 1,
				  .opcode = operation->opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_qp_attr none = { .qp_access_flags = 0 };
	struct ibv_mw *window = NULL;
	struct ibv_mr *mr;
	bool has_range = cause != UNKNOWN && cause != DEREGISTERED && cause != WINDOW;
	uint64_t addr;
	uint32_t rkey;

	if (cause == RIGHT)
		granted = operation->lacking;
	mr = ibv_reg_mr(cause == DOMAIN ? other_pd : pd, words, sizeof words, granted);
	CHECK(mr);
	fault.lkey = mr->rkey;
	switch (cause) {
	case UNKNOWN:
		fault.lkey ^= 0x5a00;
		break;
	case DEREGISTERED:
		CHECK(ibv_dereg_mr(mr) == 0);
		mr = NULL;
		break;
	case BOUNDS:
		fault.addr += sizeof words;
		break;
	case QP_RIGHT:
		CHECK(ibv_modify_qp(b.qp, &none, IBV_QP_ACCESS_FLAGS) == 0);
		break;
	case INVALIDATED:
		invalidate(owner, fault.lkey);
		break;
	case WINDOW:
		window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		CHECK(window);
		fault.lkey = window->rkey;
		break;
	case UNALIGNED:
		fault.addr += 4;
		break;
	case DOMAIN:
	case RIGHT:
	case CAUSES:
		break;
	}

	fprintf(stderr, "-- %s: %s\nhere:operation=%s;key=0x%08x;address=%#lx;length=%d", operation->name,
		causes[cause], operation->told, fault.lkey, (unsigned long)fault.addr, LENGTH);
	if (has_range) {
		fprintf(stderr, ";range=%#lx..%#lx", (unsigned long)words, (unsigned long)(words + 8));
		say_rights(granted);
	}
	if (operation->whose == PEERS)
		fprintf(stderr, "\nthere:operation=%s;wr_id=7;key=0x%08x;address=%#lx;length=%d\n",
			operation->told, fault.lkey, (unsigned long)fault.addr, LENGTH);
	else if (operation->whose == RECEIVES)
		/* A Send has ended for an RNIC when it was sent. */
		fprintf(stderr, ";wr_id=8\nthere:%s\n",
			as_rnic ? "code=0/0/00" : "operation=Send;wr_id=7;length=8");
	else
		fprintf(stderr, ";wr_id=7\n%s", over_udp ? "" : "there:code=0/0/00\n");

	addr = operation->whose == PEERS ? fault.addr : (uintptr_t)b.buf;
	rkey = operation->whose == PEERS ? fault.lkey : b.mr->rkey;
	if (operation->whose == RECEIVES)
		of_b.sg_list = &fault;
	else if (operation->whose == OWN)
		wr.sg_list = &fault;
	if (is_atomic()) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
	} else if (operation->opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(ibv_post_recv(b.qp, &of_b, &bad_recv) == 0);
	CHECK(ibv_post_recv(a.qp, &of_a, &bad_recv) == 0);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	await(&a, 9);
	/* Over RoCE v2 the peer does not hear of it. */
	if (operation->whose != OWN || !over_udp)
		await(&b, 8);
	if (mr)
		CHECK(ibv_dereg_mr(mr) == 0);
	if (window)
		CHECK(ibv_dealloc_mw(window) == 0);
}

int main(int argc, char **argv)
{
	const char *personality = getenv("IWARP_PERSONALITY"), *wire = getenv("IWARP_WIRE");

	as_rnic = personality && !strcmp(personality, "iwarp");
	over_udp = wire && !strcmp(wire, "roce");
	CHECK(argc == 2);
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (!strcmp(operations[i].name, argv[1]))
			operation = &operations[i];
	CHECK(operation);
	open_context();
	other_pd = ibv_alloc_pd(context);
	CHECK(other_pd);
	for (enum cause cause = 0; cause < CAUSES; cause++) {
		if (!applies(cause))
			continue;
		meet();
		provoke(cause);
		unmake(&a);
		unmake(&b);
	}
	CHECK(ibv_dealloc_pd(other_pd) == 0);
	close_context();
	return 0;
}
