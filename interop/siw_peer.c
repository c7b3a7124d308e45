/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The guest's end of siw-exchange.sh: does on an RDMA device what the other end tells it to, and
 * says whether the bytes are what they should be. That end is crates/iwarp/examples/
 * siw_exchange.rs, where the exchange is described.
 *
 * usage: siw_peer listen|connect ADDRESS PORT DEPTH [OWN-PRIVATE PEERS-PRIVATE]
 * The last two are the bytes of private data that this end sends in the start-up, and expects.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define ROOM (4u << 20)		/* bytes of the largest message */
#define SPARE 4096u		/* bytes behind it, which nobody may touch */
#define SIZE (ROOM + SPARE)
#define UNTOUCHED 0xee
#define MANY 16			/* operations posted at a time, at most */
#define PRIVATE_SEED 0xda7au	/* of the private data */
#define MESSAGE 16		/* bytes of a command, of an answer, of what is lent */

enum command {
	CHECK_LENT = 1, FILL_LENT, WRITE, READ, SEND, TAKE_SEND, BYE,
};

/* A buffer, known to the device. */
struct memory {
	uint8_t *octets;
	struct ibv_mr *mr;
};

static struct rdma_cm_id *id;
static struct memory lent;	/* the other end writes and reads it */
static struct memory own;	/* what this end writes, reads into and sends */
static struct memory inbox;	/* where the next message goes */
static struct memory outbox;	/* the last answer */
static uint64_t their_addr;
static uint32_t their_rkey;

__attribute__((noreturn, format(printf, 1, 2)))
static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("siw_peer: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static void must(int result, const char *what)
{
	if (result) {
		perror(what);
		die("gives up");
	}
}

static uint32_t load(const uint8_t *octets, unsigned int field)
{
	uint32_t value;

	memcpy(&value, octets + 4 * field, 4);
	return ntohl(value);
}

static void store(uint8_t *octets, unsigned int field, uint32_t value)
{
	value = htonl(value);
	memcpy(octets + 4 * field, &value, 4);
}

/* The byte at a place of a message: no two places of a few hundred alike, no two seeds either. */
static uint8_t octet(uint32_t seed, uint32_t place)
{
	uint32_t mixed = (place + seed * 0x9e3779b9u) * 0x85ebca6bu;

	return (uint8_t)(mixed >> 24 ^ mixed >> 11);
}

static void fill(struct memory *memory, uint32_t seed, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		memory->octets[i] = octet(seed, i);
	memset(memory->octets + len, UNTOUCHED, SIZE - len);
}

/* 0, or the number of the first byte that is wrong, from 1. Leaves the memory untouched. */
static uint32_t check(struct memory *memory, uint32_t seed, uint32_t len)
{
	const uint8_t *behind = memory->octets + len;
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < len && !wrong; i++) {
		if (memory->octets[i] != octet(seed, i))
			wrong = i + 1;
	}
	/* All of them are alike: a loop would take most of an emulated processor's time. */
	if (!wrong && (*behind != UNTOUCHED || memcmp(behind, behind + 1, SIZE - len - 1))) {
		while (*behind == UNTOUCHED)
			behind++;
		wrong = (uint32_t)(behind - memory->octets) + 1;
	}
	memset(memory->octets, UNTOUCHED, SIZE);
	return wrong;
}

static void expect(struct memory *memory, int access)
{
	memory->octets = malloc(SIZE);
	if (!memory->octets)
		die("no memory");
	memset(memory->octets, UNTOUCHED, SIZE);
	memory->mr = ibv_reg_mr(id->pd, memory->octets, SIZE, access | IBV_ACCESS_LOCAL_WRITE);
	if (!memory->mr)
		must(-1, "ibv_reg_mr");
}

static void make_ready(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {
			.max_send_wr = 2 * MANY, .max_recv_wr = 2,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};

	must(rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
	expect(&lent, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	expect(&own, 0);
	expect(&inbox, 0);
	expect(&outbox, 0);
	must(rdma_post_recv(id, NULL, inbox.octets, SIZE, inbox.mr), "rdma_post_recv");
}

/* Waits for a message, and says how long it is; -1 when there will be none. */
static int64_t receive(void)
{
	struct ibv_wc wc;

	if (rdma_get_recv_comp(id, &wc) != 1)
		must(-1, "rdma_get_recv_comp");
	if (wc.status == IBV_WC_WR_FLUSH_ERR)
		return -1;
	if (wc.status != IBV_WC_SUCCESS)
		die("receiving: %s", ibv_wc_status_str(wc.status));
	return wc.byte_len;
}

/* The message was looked at: room for the next. */
static void next(void)
{
	must(rdma_post_recv(id, NULL, inbox.octets, SIZE, inbox.mr), "rdma_post_recv");
}

static void wait_for(unsigned int count, const char *what)
{
	struct ibv_wc wc;

	while (count--) {
		if (rdma_get_send_comp(id, &wc) != 1)
			must(-1, "rdma_get_send_comp");
		if (wc.status != IBV_WC_SUCCESS)
			die("%s: %s", what, ibv_wc_status_str(wc.status));
	}
}

static void post_answer(uint32_t wrong)
{
	memset(outbox.octets, 0, MESSAGE);
	store(outbox.octets, 0, wrong);
	must(rdma_post_send(id, NULL, outbox.octets, MESSAGE, outbox.mr, 0), "rdma_post_send");
}

static void swap_addresses(int first)
{
	uint64_t addr = (uintptr_t)lent.octets;

	store(outbox.octets, 0, (uint32_t)(addr >> 32));
	store(outbox.octets, 1, (uint32_t)addr);
	store(outbox.octets, 2, lent.mr->rkey);
	store(outbox.octets, 3, SIZE);
	/* A responder says nothing before the initiator has (RFC 5044, 7.1). */
	if (first) {
		must(rdma_post_send(id, NULL, outbox.octets, MESSAGE, outbox.mr, 0), "first send");
		wait_for(1, "first send");
	}
	if (receive() != MESSAGE)
		die("the other end does not say what it lends");
	their_addr = (uint64_t)load(inbox.octets, 0) << 32 | load(inbox.octets, 1);
	their_rkey = load(inbox.octets, 2);
	if (load(inbox.octets, 3) != SIZE)
		die("the other end lends %u bytes", load(inbox.octets, 3));
	next();
	/* Only now is there room for a command: the other end waits for this. */
	if (first)
		post_answer(0);
	else
		must(rdma_post_send(id, NULL, outbox.octets, MESSAGE, outbox.mr, 0), "first send");
	wait_for(1, "first send");
}

/* Reads or writes count pieces of len bytes, one behind the other, all posted at once. */
static void transfer(int (*post)(struct rdma_cm_id *, void *, void *, size_t, struct ibv_mr *,
				 int, uint64_t, uint32_t),
		     uint32_t len, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t from = (uint64_t)i * len;

		must(post(id, NULL, own.octets + from, len, own.mr, 0, their_addr + from,
			  their_rkey), "posting an RDMA Write or Read");
	}
}

/* Does what the message in the inbox says; 0 when that was the last. */
static int obey(void)
{
	uint32_t command = load(inbox.octets, 0);
	uint32_t len = load(inbox.octets, 1);
	uint32_t seed = load(inbox.octets, 2);
	uint32_t count = load(inbox.octets, 3);
	int64_t got;

	if (count > MANY || (uint64_t)len * count > ROOM)
		die("asked for %u times %u bytes", count, len);
	memset(inbox.octets, UNTOUCHED, MESSAGE);
	next();
	switch (command) {
	case CHECK_LENT:
		post_answer(check(&lent, seed, len * count));
		break;
	case FILL_LENT:
		fill(&lent, seed, len * count);
		post_answer(0);
		break;
	case WRITE:
		fill(&own, seed, len * count);
		transfer(rdma_post_write, len, count);
		/* It may not overtake them. */
		post_answer(0);
		wait_for(count, "RDMA Write");
		break;
	case READ:
		memset(own.octets, UNTOUCHED, SIZE);
		transfer(rdma_post_read, len, count);
		wait_for(count, "RDMA Read");
		post_answer(check(&own, seed, len * count));
		break;
	case SEND:
		fill(&own, seed, len);
		must(rdma_post_send(id, NULL, own.octets, len, own.mr, 0), "rdma_post_send");
		break;
	case TAKE_SEND:
		post_answer(0);
		got = receive();
		if (got != len)
			die("got a message of %lld bytes, not %u", (long long)got, len);
		got = check(&inbox, seed, len);
		next();
		wait_for(1, "answer");
		post_answer((uint32_t)got);
		break;
	case BYE:
		post_answer(0);
		wait_for(1, "answer");
		return 0;
	default:
		die("no command has the number %u", command);
	}
	wait_for(1, "answer");
	return 1;
}

/* Compares the private data that came with the peer's request or answer. */
static void check_private(int expected)
{
	const struct rdma_conn_param *got = &id->event->param.conn;

	if (expected < 0)
		return;
	if (got->private_data_len != expected)
		die("%u bytes of private data, not %d", got->private_data_len, expected);
	for (int i = 0; i < expected; i++)
		if (((const uint8_t *)got->private_data)[i] != octet(PRIVATE_SEED, (uint32_t)i))
			die("byte %d of the private data is wrong", i);
}

static void connect_to(struct sockaddr *addr, struct rdma_conn_param *param, int private)
{
	must(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_resolve_addr(id, NULL, addr, 5000), "rdma_resolve_addr");
	must(rdma_resolve_route(id, 5000), "rdma_resolve_route");
	make_ready();
	must(rdma_connect(id, param), "rdma_connect");
	check_private(private);
}

static void listen_at(struct sockaddr *addr, struct rdma_conn_param *param, int private)
{
	struct rdma_cm_id *listener;

	must(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_bind_addr(listener, addr), "rdma_bind_addr");
	must(rdma_listen(listener, 1), "rdma_listen");
	puts("listening");
	fflush(stdout);
	must(rdma_get_request(listener, &id), "rdma_get_request");
	check_private(private);
	make_ready();
	must(rdma_accept(id, param), "rdma_accept");
}

int main(int argc, char **argv)
{
	static uint8_t private[255];	/* more does not fit into a rdma_conn_param */
	struct rdma_conn_param param = { .private_data = private };
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *addr;
	int first, they_close, expected = -1;

	if ((argc != 5 && argc != 7) || getaddrinfo(argv[2], argv[3], &hints, &addr))
		die("usage: siw_peer listen|connect ADDRESS PORT DEPTH [OWN-PRIVATE PEERS-PRIVATE]");
	param.responder_resources = (uint8_t)atoi(argv[4]);
	param.initiator_depth = param.responder_resources;
	if (argc == 7) {
		param.private_data_len = (uint8_t)atoi(argv[5]);
		expected = atoi(argv[6]);
	}
	for (uint32_t i = 0; i < sizeof private; i++)
		private[i] = octet(PRIVATE_SEED, i);

	first = !strcmp(argv[1], "connect");
	(first ? connect_to : listen_at)(addr->ai_addr, &param, expected);
	swap_addresses(first);
	do {
		if (receive() != MESSAGE)
			die("a command was expected");
		they_close = load(inbox.octets, 3) == 0;
	} while (obey());
	if (they_close) {
		if (receive() != -1)
			die("a message behind the last one");
	} else {
		must(rdma_disconnect(id), "rdma_disconnect");
	}
	puts("ok");
	return 0;
}
