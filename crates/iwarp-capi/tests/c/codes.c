/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The end of each error: the request's status, the receive's, both ends' asynchronous events and
 * states, by the wire and the personality of the device. The table of docs/errors.md. */
#include <stdbool.h>
#include "pair.h"

enum way { ROCE_OVER_UDP, ROCE_OVER_IWARP, RNIC, WAYS };

/* The visible state of an end. */
struct seen {
	int status, event, state;
};

enum { NOTHING = -1, PATIENCE = 10 };

struct error {
	const char *name;
	enum ibv_wr_opcode opcode;
	/* The error, one of the following. */
	enum { KEY, BOUNDS, RIGHT, QP_RIGHT, ALIGNMENT, RECEIVE_LENGTH, RECEIVE_KEY, INVALIDATE, OWN_KEY } what;
	struct seen asking[WAYS], asked[WAYS];
};

static const struct error errors[] = {
TABLE
};

static enum way way;
static int differ;
static struct seen seen_of_a, seen_of_b;

static const char *event_name(int event)
{
	return event == NOTHING ? "none" : ibv_event_type_str(event);
}

static const char *status_name(int status)
{
	return status == NOTHING ? "none" : ibv_wc_status_str(status);
}

/* Looks until the end is in that state and has told as much as is expected. */
static void look(struct side *side, struct seen *is)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;

	CHECK(ibv_query_qp(side->qp, &attr, IBV_QP_STATE, &init) == 0);
	is->state = attr.qp_state;
	while (ibv_poll_cq(side->cq, 1, &wc) == 1) {
		CHECK(is->status == NOTHING);
		is->status = wc.status;
	}
	for (struct pollfd ready = { context->async_fd, POLLIN }; poll(&ready, 1, 0) == 1;) {
		struct ibv_async_event event;
		struct seen *whose;

		CHECK(ibv_get_async_event(context, &event) == 0);
		whose = event.element.qp == b.qp ? &seen_of_b : &seen_of_a;
		CHECK(whose->event == NOTHING);
		whose->event = event.event_type;
		ibv_ack_async_event(&event);
	}
}

static bool is_as(const struct seen *is, const struct seen *expected)
{
	/* The peer's Terminate may come before it is known that TCP has taken the request. */
	bool flushed = way == RNIC && expected->status == IBV_WC_SUCCESS &&
		       is->status == IBV_WC_WR_FLUSH_ERR;

	return (is->status == expected->status || flushed) && is->event == expected->event &&
	       is->state == expected->state;
}

static void compare(const char *name, const char *who, struct seen is, const struct seen *expected)
{
	if (is_as(&is, expected))
		return;
	fprintf(stderr, "way %d, %s, %s: %s, %s, state %d; expected %s, %s, state %d\n", way, name,
		who, status_name(is.status), event_name(is.event), is.state,
		status_name(expected->status), event_name(expected->event), expected->state);
	differ++;
}

static void provoke(const struct error *error)
{
	static uint64_t words[2];
	struct ibv_sge sge = part(&a, 0, 8), into = part(&b, 0, 8);
	struct ibv_recv_wr recv = { .wr_id = 8, .sg_list = &into, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1,
				  .opcode = error->opcode, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_mr *other = ibv_reg_mr(pd, words, sizeof words, IBV_ACCESS_LOCAL_WRITE);
	uint64_t addr = (uintptr_t)b.buf;
	uint32_t rkey = b.mr->rkey;
	const struct seen *asking = &error->asking[way], *asked = &error->asked[way];
	double end = now() + PATIENCE;

	CHECK(other);
	switch (error->what) {
	case KEY:
		rkey ^= 0x5a00;
		break;
	case BOUNDS:
		addr += SIZE;
		break;
	case RIGHT:
		addr = (uintptr_t)words;
		rkey = other->rkey;
		break;
	case QP_RIGHT: {
		struct ibv_qp_attr none = { .qp_access_flags = 0 };
		CHECK(ibv_modify_qp(b.qp, &none, IBV_QP_ACCESS_FLAGS) == 0);
		break;
	}
	case ALIGNMENT:
		addr += 4;
		break;
	case RECEIVE_LENGTH:
		into.length = 4;
		break;
	case RECEIVE_KEY:
		into.lkey ^= 0x5a00;
		break;
	case INVALIDATE:
		wr.invalidate_rkey = b.mr->rkey ^ 0x5a00;
		break;
	case OWN_KEY:
		sge.lkey ^= 0x5a00;
		break;
	}
	if (error->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr;
		wr.wr.atomic.rkey = rkey;
	} else if (error->opcode != IBV_WR_SEND_WITH_INV) {
		wr.wr.rdma.remote_addr = addr;
		wr.wr.rdma.rkey = rkey;
	}
	CHECK(ibv_post_recv(b.qp, &recv, &bad_recv) == 0);
	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	seen_of_a = seen_of_b = (struct seen){ NOTHING, NOTHING, 0 };
	/* Once more when all is as expected: nothing else comes. */
	for (int right = 0; right < 2 && now() < end;) {
		look(&a, &seen_of_a);
		look(&b, &seen_of_b);
		right += is_as(&seen_of_a, asking) && is_as(&seen_of_b, asked);
		usleep(1000);
	}
	compare(error->name, "who asks", seen_of_a, asking);
	compare(error->name, "who is asked", seen_of_b, asked);
	CHECK(ibv_dereg_mr(other) == 0);
}

int main(void)
{
	const char *personality = getenv("IWARP_PERSONALITY"), *wire = getenv("IWARP_WIRE");

	way = personality && !strcmp(personality, "iwarp") ? RNIC :
	      wire && !strcmp(wire, "roce") ? ROCE_OVER_UDP : ROCE_OVER_IWARP;
	open_context();
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		meet();
		provoke(&errors[i]);
		unmake(&a);
		unmake(&b);
	}
	close_context();
	CHECK(differ == 0);
	return 0;
}
