/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program for `iwarp conform --peer verbs` to talk to, on any RDMA device that speaks iWARP: a
 * card, Linux siw, or this project's drop-in libraries. It lends memory of four kinds, answers
 * each Send with a Send of the same data, and carries out orders. `iwarp conform --target` and
 * `--call` do the same without verbs; conformance/CASES.md says what a tester may rely on.
 *
 * usage: conform_target listen ADDRESS PORT    a server, until killed
 *        conform_target call ADDRESS PORT      a client, until nobody listens there
 * build: cc -O2 -pthread -o conform_target conform_target.c -lrdmacm -libverbs
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define LENT 65536u		/* bytes of each piece of memory that is lent */
#define RECEIVES 4u		/* receives that are posted */
#define ROOM 256u		/* bytes of each */
#define DEPTH 4			/* Reads under way */
#define ORDERS 64u		/* work requests of one order */
#define TURNS 4			/* operations of one order */
#define OPERANDS 4		/* of an operation */
#define ANSWER 128u		/* bytes of the Send that ends an order */
#define OFFER ((void *)-1)	/* the Send of that, among those of receives */
#define DONE ((void *)-2)	/* the Send that ends an order */
#define ORDER ((void *)-3)	/* a work request of an order */
#define RESOLVE 5000		/* ms for an address, and for a route */

/* A Send of these bytes asks for no more receives than are posted. */
static const char no_more[] = "no more receives";

/* A Send of "order OPERATION[,OPERATION]... TIMES LENGTH STAG TO [OPERAND]..." is an order: so many work
 * requests of LENGTH bytes each, from or to the memory "rw" one behind the other, towards the tester's
 * memory from TO on (STAG, TO and OPERANDs in hexadecimal digits); the operations take turns. When all have
 * succeeded a Send says so. Another says why an order cannot be carried out: verbs have neither masks of
 * Atomics nor Immediate Data without a Write. */
static const char order_word[] = "order ";
static const char done[] = "done";
static const char cannot[] = "cannot: ";

static const struct order {
	char name[32];
	enum ibv_wr_opcode opcode;
	int flags;
	int operands;
} orders[] = {
	{ "read", IBV_WR_RDMA_READ, 0, 0 },
	{ "write", IBV_WR_RDMA_WRITE, 0, 0 },
	{ "send", IBV_WR_SEND, 0, 0 },
	{ "send-solicited", IBV_WR_SEND, IBV_SEND_SOLICITED, 0 },
	{ "send-invalidate", IBV_WR_SEND_WITH_INV, 0, 0 },
	{ "send-solicited-invalidate", IBV_WR_SEND_WITH_INV, IBV_SEND_SOLICITED, 0 },
	{ "fetch-add", IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1 },
	{ "compare-swap", IBV_WR_ATOMIC_CMP_AND_SWP, 0, 2 },
	{ "write-immediate", IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1 },
	{ "write-immediate-solicited", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_SEND_SOLICITED, 1 },
};

/* Memory that is lent, by the name that cases have for it. */
enum kind { READ_WRITE, READ_ONLY, WRITE_ONLY, OTHER_DOMAIN, KINDS };

static const struct {
	char name[8];
	int access;
} lent[KINDS] = {
	[READ_WRITE] = { "rw", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ },
	[READ_ONLY] = { "ro", IBV_ACCESS_REMOTE_READ },
	[WRITE_ONLY] = { "wo", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
	[OTHER_DOMAIN] = { "other", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ },
};

/* What is lent, in network byte order: a server's private data, a client's first Send. (A client's
 * private data would be more than some stacks bear when an attempt to connect fails.) */
struct offer {
	char magic[4];
	uint32_t receives;
	uint32_t room;
	struct {
		char name[8];
		uint32_t stag;
		uint32_t to[2];
		uint32_t len;
	} __attribute__((packed)) lent[KINDS];
} __attribute__((packed));

/* What is received, what is offered, and what ends an order. */
#define INBOX (RECEIVES * ROOM + sizeof(struct offer) + ANSWER)

/* One connection and what it lends. */
struct lender {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_pd *other;
	struct ibv_mr *mr[KINDS];
	uint8_t *memory[KINDS];
	struct ibv_mr *inbox_mr;
	uint8_t *inbox;
	int more;		/* receives are posted anew */
	int has_atomics;
	unsigned int ordered;	/* work requests of an order that have not completed */
};

static void complain(const char *what)
{
	fprintf(stderr, "conform_target: %s: %s\n", what, strerror(errno));
}

static int post(struct lender *lender, uint64_t slot)
{
	return rdma_post_recv(lender->id, (void *)(uintptr_t)slot, lender->inbox + slot * ROOM, ROOM,
			      lender->inbox_mr);
}

static void put_away(struct lender *lender)
{
	if (lender->id && lender->id->qp)
		rdma_destroy_qp(lender->id);
	for (int kind = 0; kind < KINDS; kind++) {
		if (lender->mr[kind])
			ibv_dereg_mr(lender->mr[kind]);
		free(lender->memory[kind]);
	}
	if (lender->inbox_mr)
		ibv_dereg_mr(lender->inbox_mr);
	free(lender->inbox);
	if (lender->cq)
		ibv_destroy_cq(lender->cq);
	if (lender->completions)
		ibv_destroy_comp_channel(lender->completions);
	if (lender->other)
		ibv_dealloc_pd(lender->other);
	if (lender->pd)
		ibv_dealloc_pd(lender->pd);
	if (lender->id)
		rdma_destroy_id(lender->id);
	if (lender->events)
		rdma_destroy_event_channel(lender->events);
	free(lender);
}

/* Memory and a queue pair for a connection whose device is known. */
static int prepare(struct lender *lender)
{
	struct ibv_context *device = lender->id->verbs;
	struct ibv_device_attr has;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {
			.max_send_wr = RECEIVES + ORDERS + 2, .max_recv_wr = RECEIVES,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};

	if (ibv_query_device(device, &has))
		return -1;
	lender->has_atomics = has.atomic_cap != IBV_ATOMIC_NONE;
	lender->more = 1;
	lender->pd = ibv_alloc_pd(device);
	lender->other = ibv_alloc_pd(device);
	lender->completions = ibv_create_comp_channel(device);
	if (!lender->pd || !lender->other || !lender->completions)
		return -1;
	lender->cq = ibv_create_cq(device, 2 * RECEIVES + ORDERS + 2, NULL, lender->completions, 0);
	if (!lender->cq)
		return -1;
	for (int kind = 0; kind < KINDS; kind++) {
		struct ibv_pd *pd = kind == OTHER_DOMAIN ? lender->other : lender->pd;

		lender->memory[kind] = malloc(LENT);
		if (!lender->memory[kind])
			return -1;
		for (unsigned int at = 0; at < LENT; at++)
			lender->memory[kind][at] = at % 251 + 1;
		lender->mr[kind] = ibv_reg_mr(pd, lender->memory[kind], LENT, lent[kind].access);
		if (!lender->mr[kind])
			return -1;
	}
	lender->inbox = malloc(INBOX);
	if (!lender->inbox)
		return -1;
	lender->inbox_mr = ibv_reg_mr(lender->pd, lender->inbox, INBOX, IBV_ACCESS_LOCAL_WRITE);
	if (!lender->inbox_mr)
		return -1;
	attr.send_cq = attr.recv_cq = lender->cq;
	if (rdma_create_qp(lender->id, lender->pd, &attr))
		return -1;
	for (uint64_t slot = 0; slot < RECEIVES; slot++) {
		if (post(lender, slot))
			return -1;
	}
	return ibv_req_notify_cq(lender->cq, 0);
}

static struct offer offer_of(const struct lender *lender)
{
	struct offer offer = { .magic = { 'i', 'c', 'f', '1' }, .receives = htonl(RECEIVES), .room = htonl(ROOM) };

	for (int kind = 0; kind < KINDS; kind++) {
		uint64_t to = (uintptr_t)lender->memory[kind];

		memcpy(offer.lent[kind].name, lent[kind].name, sizeof(lent[kind].name));
		offer.lent[kind].stag = htonl(lender->mr[kind]->rkey);
		offer.lent[kind].to[0] = htonl(to >> 32);
		offer.lent[kind].to[1] = htonl((uint32_t)to);
		offer.lent[kind].len = htonl(LENT);
	}
	return offer;
}

/* The offer where the device may read it, behind what is received. */
static void *put_offer(struct lender *lender)
{
	struct offer offer = offer_of(lender);

	return memcpy(lender->inbox + RECEIVES * ROOM, &offer, sizeof(offer));
}

static const struct order *find_order(const char *name)
{
	for (size_t row = 0; row < sizeof(orders) / sizeof(orders[0]); row++) {
		if (!strcmp(name, orders[row].name))
			return &orders[row];
	}
	return NULL;
}

static int is_atomic(const struct order *order)
{
	return order->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || order->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* Posts one work request of an order. */
static int post_order(struct lender *lender, const struct order *order, struct ibv_sge *sge, uint32_t stag,
		      uint64_t to, const unsigned long long *operands)
{
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)ORDER, .sg_list = sge, .num_sge = 1,
		.opcode = order->opcode, .send_flags = order->flags,
	}, *bad;

	if (is_atomic(order)) {
		wr.wr.atomic.rkey = stag;
		wr.wr.atomic.remote_addr = to;
		wr.wr.atomic.compare_add = operands[0];
		wr.wr.atomic.swap = operands[1];
	} else if (wr.opcode == IBV_WR_SEND_WITH_INV) {
		wr.invalidate_rkey = stag;
	} else {
		wr.wr.rdma.rkey = stag;
		wr.wr.rdma.remote_addr = to;
	}
	if (wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		wr.imm_data = htonl((uint32_t)operands[0]);
	return ibv_post_send(lender->id->qp, &wr, &bad);
}

/* Posts what an order says; returns why it cannot be carried out, or NULL. */
static const char *obey(struct lender *lender, const uint8_t *data, uint32_t len)
{
	char text[ROOM + 1] = "", names[ROOM], *at, *rest;
	const struct order *turns[TURNS];
	unsigned long long to, operands[OPERANDS] = { 0 };
	unsigned int times, length, stag;
	int operations = 0, got = 0, end = 0;

	memcpy(text, data, len);
	if (sscanf(text, "order %255s %u %u %x %llx%n", names, &times, &length, &stag, &to, &end) != 5 ||
	    times < 1 || times > ORDERS || length > LENT / times)
		return "there is no such order";
	for (at = text + end; got < OPERANDS && sscanf(at, "%llx%n", &operands[got], &end) == 1; at += end)
		got++;
	for (at = strtok_r(names, ",", &rest); at; at = strtok_r(NULL, ",", &rest)) {
		const struct order *order = find_order(at);

		if (!order || operations == TURNS)
			return "verbs have no such operation";
		if (is_atomic(order) && !lender->has_atomics)
			return "the device has no Atomics";
		if (is_atomic(order) && got > order->operands)
			return "verbs have no Atomics with masks";
		if (got < order->operands)
			return "there is an operand missing";
		turns[operations++] = order;
	}
	for (unsigned int number = 0; number < times; number++) {
		uint64_t place = (uint64_t)number * length;
		struct ibv_sge sge = {
			.addr = (uintptr_t)lender->memory[READ_WRITE] + place, .length = length,
			.lkey = lender->mr[READ_WRITE]->lkey,
		};

		if (post_order(lender, turns[number % operations], &sge, stag, to + place, operands))
			return "the device takes no such work request";
	}
	lender->ordered = times;
	return NULL;
}

/* Ends an order: it is carried out, or cannot be, for a reason. What is under way ends by itself. */
static int end_order(struct lender *lender, const char *why)
{
	char *text = (char *)lender->inbox + INBOX - ANSWER;

	lender->ordered = 0;
	snprintf(text, ANSWER, "%s%s", why ? cannot : done, why ? why : "");
	return rdma_post_send(lender->id, DONE, text, strlen(text), lender->inbox_mr, 0);
}

/* Takes the completions that are there. Not 0: the connection is over. */
static int answer(struct lender *lender)
{
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(lender->cq, 1, &wc)) == 1) {
		uint8_t *data = lender->inbox + wc.wr_id * ROOM;

		/* Nothing was sent, and the connection may live: this project's verbs have it so where the
		 * peer is taken to be without RFC 7306. */
		if (wc.wr_id == (uintptr_t)ORDER && wc.status == IBV_WC_REM_INV_REQ_ERR) {
			if (lender->ordered && end_order(lender, "this is not sent to such a peer"))
				return -1;
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS)
			return -1;
		if (wc.wr_id == (uintptr_t)OFFER || wc.wr_id == (uintptr_t)DONE)
			continue;
		if (wc.wr_id == (uintptr_t)ORDER) {
			if (lender->ordered && !--lender->ordered && end_order(lender, NULL))
				return -1;
			continue;
		}
		if (wc.opcode == IBV_WC_SEND) {
			if (lender->more && post(lender, wc.wr_id))
				return -1;
			continue;
		}
		if (wc.byte_len > strlen(order_word) && !memcmp(data, order_word, strlen(order_word))) {
			const char *why = obey(lender, data, wc.byte_len);

			if ((why && end_order(lender, why)) || post(lender, wc.wr_id))
				return -1;
			continue;
		}
		if (wc.byte_len == strlen(no_more) && !memcmp(data, no_more, wc.byte_len))
			lender->more = 0;
		if (rdma_post_send(lender->id, (void *)(uintptr_t)wc.wr_id, data, wc.byte_len, lender->inbox_mr, 0))
			return -1;
	}
	return got;
}

/* The next event's type, and its status; -1 where there are no more events. */
static int next_event(struct rdma_event_channel *events, int *status)
{
	struct rdma_cm_event *event;
	int type;

	if (rdma_get_cm_event(events, &event))
		return -1;
	type = event->event;
	*status = event->status;
	rdma_ack_cm_event(event);
	return type;
}

/* Answers until the connection ends. */
static void attend(struct lender *lender)
{
	struct pollfd fds[] = {
		{ .fd = lender->events->fd, .events = POLLIN },
		{ .fd = lender->completions->fd, .events = POLLIN },
	};
	int status;

	while (poll(fds, 2, -1) > 0) {
		if (fds[1].revents) {
			struct ibv_cq *cq;
			void *context;

			if (ibv_get_cq_event(lender->completions, &cq, &context))
				break;
			ibv_ack_cq_events(cq, 1);
			if (ibv_req_notify_cq(cq, 0))
				break;
			/* What has failed is followed by an event that says why. */
			if (answer(lender))
				fds[1].fd = -1;
		}
		if (fds[0].revents && next_event(lender->events, &status) != RDMA_CM_EVENT_ESTABLISHED)
			break;
	}
	rdma_disconnect(lender->id);
}

static void *serve_one(void *arg)
{
	struct lender *lender = arg;
	struct rdma_conn_param params = { .responder_resources = DEPTH, .initiator_depth = DEPTH };
	struct offer offer;

	if (prepare(lender)) {
		complain("cannot prepare a connection");
		rdma_reject(lender->id, NULL, 0);
	} else {
		offer = offer_of(lender);
		params.private_data = &offer;
		params.private_data_len = sizeof(offer);
		/* Where this fails the tester has done it on purpose. */
		if (!rdma_accept(lender->id, &params))
			attend(lender);
	}
	put_away(lender);
	return NULL;
}

static struct lender *new_lender(void)
{
	struct lender *lender = calloc(1, sizeof(*lender));

	if (lender && !(lender->events = rdma_create_event_channel())) {
		free(lender);
		lender = NULL;
	}
	return lender;
}

static int serve(const struct addrinfo *addr)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_id *listener;
	struct rdma_cm_event *event;
	char address[INET6_ADDRSTRLEN];

	if (!events || rdma_create_id(events, &listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(listener, addr->ai_addr) || rdma_listen(listener, 64)) {
		complain("cannot listen");
		return 1;
	}
	if (getnameinfo(rdma_get_local_addr(listener), sizeof(struct sockaddr_storage), address, sizeof(address),
			NULL, 0, NI_NUMERICHOST))
		address[0] = 0;
	fprintf(stderr, "listening on %s:%u\n", address, ntohs(rdma_get_src_port(listener)));
	while (!rdma_get_cm_event(events, &event)) {
		struct rdma_cm_id *id = event->id;
		int is_request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		struct lender *lender;
		pthread_t thread;

		rdma_ack_cm_event(event);
		if (!is_request)
			continue;
		lender = new_lender();
		if (!lender || rdma_migrate_id(id, lender->events)) {
			complain("cannot take a connection");
			rdma_destroy_id(id);
			if (lender)
				put_away(lender);
			continue;
		}
		lender->id = id;
		if (pthread_create(&thread, NULL, serve_one, lender)) {
			complain("no thread");
			put_away(lender);
			continue;
		}
		pthread_detach(thread);
	}
	complain("no more events");
	return 1;
}

static void *attend_one(void *arg)
{
	attend(arg);
	put_away(arg);
	return NULL;
}

/* One connection. Not 0: nobody listens any more, or there is no going on. */
static int call_one(const struct addrinfo *addr)
{
	/* A tester refuses some connections, and that looks the same; but never so many in a row. */
	static int refused;
	struct lender *lender = new_lender();
	struct rdma_conn_param params = { .responder_resources = DEPTH, .initiator_depth = DEPTH };
	pthread_t thread;
	int status = 0;

	if (!lender || rdma_create_id(lender->events, &lender->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(lender->id, NULL, addr->ai_addr, RESOLVE) ||
	    next_event(lender->events, &status) != RDMA_CM_EVENT_ADDR_RESOLVED ||
	    rdma_resolve_route(lender->id, RESOLVE) ||
	    next_event(lender->events, &status) != RDMA_CM_EVENT_ROUTE_RESOLVED || prepare(lender)) {
		complain("cannot prepare a connection");
		if (lender)
			put_away(lender);
		return 1;
	}
	if (rdma_connect(lender->id, &params))
		status = -errno;
	else if (next_event(lender->events, &status) == RDMA_CM_EVENT_ESTABLISHED)
		status = 0;
	refused = status == -ECONNREFUSED ? refused + 1 : 0;
	if (status) {
		put_away(lender);
		return refused == 5;
	}
	if (rdma_post_send(lender->id, OFFER, put_offer(lender), sizeof(struct offer), lender->inbox_mr, 0)) {
		complain("cannot say what is lent");
		put_away(lender);
		return 1;
	}
	/* What is under way may outlive the case for a moment; the next one does not wait for that. */
	if (pthread_create(&thread, NULL, attend_one, lender)) {
		complain("no thread");
		put_away(lender);
		return 1;
	}
	pthread_detach(thread);
	return 0;
}

int main(int argc, char **argv)
{
	struct addrinfo *addr;
	int error;

	if (argc != 4 || (strcmp(argv[1], "listen") && strcmp(argv[1], "call"))) {
		fprintf(stderr, "usage: conform_target listen|call ADDRESS PORT\n");
		return 2;
	}
	/* Whoever orders an operation of RFC 7306 has RFC 7306. This project's libraries would ask the tester by a
	 * frame of their own, and do not send these operations to one that does not answer. */
	setenv("IWARP_EXTENSIONS", "assume", 0);
	error = getaddrinfo(argv[2], argv[3], NULL, &addr);
	if (error) {
		fprintf(stderr, "conform_target: %s: %s\n", argv[2], gai_strerror(error));
		return 2;
	}
	if (!strcmp(argv[1], "listen"))
		return serve(addr);
	while (!call_one(addr))
		;
	freeaddrinfo(addr);
	return 0;
}
