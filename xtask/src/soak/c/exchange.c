/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "exchange.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	/* Longer than a connection may need to find out that its peer is gone. */
	PATIENCE_MS = 60000,

	SLOTS = 16,
	MESSAGE = 16 << 10,
	BULK = 256 << 10,
	PARTS = 8,
	DEPTH = 32,

	/* The layout of an end's memory. */
	INBOX = 0,
	OUTBOX = INBOX + SLOTS * MESSAGE,
	/* The peer writes here, */
	FLAGGED = OUTBOX + SLOTS * MESSAGE,
	/* reads here, */
	SOURCE = FLAGGED + BULK,
	/* and counts here. */
	COUNTER = SOURCE + BULK,
	RESULTS = COUNTER + 64,
	/* The results of Reads. */
	SCRATCH = RESULTS + 64 * PARTS,
	SIZE = SCRATCH + BULK,
};

enum kind { MESSAGES, FLOOD, WRITES, READS, ATOMICS, IMMEDIATE, KINDS };

/* The events of a round. */
struct round {
	enum kind kind;
	unsigned parts;
	uint32_t length, back;
	uint64_t word;
};

static uint64_t mixed(uint64_t z)
{
	/* SplitMix64 */
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static uint64_t drawn(const struct end *end, uint64_t round, uint64_t what)
{
	return mixed(end->agreed.seed + mixed(round * 16 + what + 1));
}

static struct round round_of(const struct end *end, uint32_t number)
{
	struct round round = {
		.kind = drawn(end, number, 0) % KINDS,
		.parts = 1 + drawn(end, number, 1) % PARTS,
		.word = drawn(end, number, 4),
	};
	/* Short ones as often as long ones. */
	uint32_t most = round.kind == WRITES || round.kind == READS ? BULK : MESSAGE;

	round.length = 16 + drawn(end, number, 2) % (drawn(end, number, 5) % 2 ? 500 : most - 16);
	round.back = 16 + drawn(end, number, 3) % (drawn(end, number, 6) % 2 ? 500 : MESSAGE - 16);
	round.length &= ~7u;
	return round;
}

uint64_t milliseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000ull + t.tv_nsec / 1000000;
}

void give_up(struct end *end, enum outcome outcome, const char *format, ...)
{
	va_list arguments;

	end->outcome = outcome;
	va_start(arguments, format);
	vsnprintf(end->why, sizeof end->why, format, arguments);
	va_end(arguments);
	longjmp(end->out, 1);
}

/* The bytes that belong to a word of a round. */
static void fill(uint8_t *at, size_t length, uint64_t word)
{
	for (size_t i = 0; i < length; i += 8) {
		uint64_t octets = htole64(mixed(word + i));

		memcpy(at + i, &octets, length - i < 8 ? length - i : 8);
	}
}

static void verify(struct end *end, const char *what, uint32_t number, const uint8_t *at,
		   size_t length, uint64_t word)
{
	for (size_t i = 0; i < length; i += 8) {
		uint64_t octets = htole64(mixed(word + i));

		if (memcmp(at + i, &octets, length - i < 8 ? length - i : 8) != 0)
			give_up(end, WRONG, "%s of round %u: octets %zu of %zu", what, number, i, length);
	}
	end->octets += length;
}

static void post_receive(struct end *end, unsigned slot)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + INBOX + slot * MESSAGE, MESSAGE, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	int error = ibv_post_recv(end->id->qp, &wr, &bad);

	if (error)
		give_up(end, ENDED, "ibv_post_recv: %s", strerror(error));
}

static void take(struct end *end, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS)
		give_up(end, ENDED, "%s", ibv_wc_status_str(wc->status));
	end->progress = milliseconds();
	if (!(wc->opcode & IBV_WC_RECV)) {
		end->under_way--;
		return;
	}
	unsigned last = (end->first_arrived + end->n_arrived++) % 64;
	/* Slot and length in one; for Writes with Immediate the number that came along. */
	end->arrived[last] = wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? be32toh(wc->imm_data)
								     : wc->byte_len;
	end->arrived[last] |= (uint32_t)wc->wr_id << 24;
}

static void sleep_for_completions(struct end *end)
{
	struct pollfd ready = { end->completions->fd, POLLIN, 0 };
	struct ibv_cq *cq;
	void *context;

	if (poll(&ready, 1, 200) == 1) {
		if (ibv_get_cq_event(end->completions, &cq, &context))
			give_up(end, ENDED, "ibv_get_cq_event: %s", strerror(errno));
		ibv_ack_cq_events(cq, 1);
	}
}

/* Takes what has completed, and says how many that were. */
static int collect(struct end *end)
{
	struct ibv_wc wcs[8];
	int n = ibv_poll_cq(end->cq, 8, wcs);

	if (n < 0)
		give_up(end, ENDED, "ibv_poll_cq: %s", strerror(errno));
	for (int i = 0; i < n; i++)
		take(end, &wcs[i]);
	if (n == 0 && milliseconds() - end->progress > PATIENCE_MS)
		give_up(end, HANG, "nothing for %d s", PATIENCE_MS / 1000);
	return n;
}

/* Waits for completions, for a little at least. */
static void pump(struct end *end)
{
	if (collect(end))
		return;
	if (!end->sleeps) {
		sched_yield();
		return;
	}
	if (ibv_req_notify_cq(end->cq, 0))
		give_up(end, ENDED, "ibv_req_notify_cq");
	/* Completions that came before it was armed make no event. */
	if (!collect(end))
		sleep_for_completions(end);
}

static void post(struct end *end, enum ibv_wr_opcode opcode, size_t local, uint32_t length,
		 size_t remote, uint64_t operand, uint64_t swap)
{
	struct ibv_sge sge = { (uintptr_t)end->memory + local, length, end->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int error;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = end->lent.address + remote;
		wr.wr.atomic.rkey = end->lent.rkey;
		wr.wr.atomic.compare_add = operand;
		wr.wr.atomic.swap = swap;
	} else {
		wr.wr.rdma.remote_addr = end->lent.address + remote;
		wr.wr.rdma.rkey = end->lent.rkey;
	}
	if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		wr.imm_data = htobe32(operand);
	while (end->under_way >= DEPTH)
		pump(end);
	error = ibv_post_send(end->id->qp, &wr, &bad);
	if (error)
		give_up(end, ENDED, "ibv_post_send: %s", strerror(error));
	end->under_way++;
}

static void settle(struct end *end)
{
	while (end->under_way > 0)
		pump(end);
}

/* Bytes from a slot of the outbox; the peer has a receive. */
static void send_message(struct end *end, unsigned slot, uint32_t length, uint64_t word)
{
	fill(end->memory + OUTBOX + slot * MESSAGE, length, word);
	post(end, IBV_WR_SEND, OUTBOX + slot * MESSAGE, length, 0, 0, 0);
	end->messages++;
}

static uint32_t next_arrived(struct end *end, unsigned *slot)
{
	while (end->n_arrived == 0)
		pump(end);
	uint32_t both = end->arrived[end->first_arrived % 64];
	end->first_arrived = (end->first_arrived + 1) % 64;
	end->n_arrived--;
	*slot = both >> 24;
	return both & 0xffffff;
}

static void receive_message(struct end *end, uint32_t number, uint32_t length, uint64_t word)
{
	unsigned slot;
	uint32_t arrived = next_arrived(end, &slot);

	if (arrived != length)
		give_up(end, WRONG, "message of round %u: %u octets instead of %u", number, arrived, length);
	verify(end, "message", number, end->memory + INBOX + slot * MESSAGE, length, word);
	post_receive(end, slot);
}

/* Writes in several parts, the last of which ends with the word that the peer waits for. */
static void write_flagged(struct end *end, const struct round *round)
{
	uint32_t part = round->length / round->parts & ~7u;

	settle(end);
	fill(end->memory + SCRATCH, round->length, round->word);
	for (unsigned i = 0; i < round->parts; i++) {
		uint32_t length = i + 1 < round->parts ? part : round->length - i * part;

		post(end, IBV_WR_RDMA_WRITE, SCRATCH + i * part, length, FLAGGED + i * part, 0, 0);
	}
	end->messages += round->parts;
}

/* The last word is visible last: when it is there, all is. */
static void await_flagged(struct end *end, uint32_t number, const struct round *round)
{
	uint64_t *flag = (uint64_t *)(end->memory + FLAGGED + round->length - 8);
	uint64_t want = htole64(mixed(round->word + round->length - 8)), start = milliseconds();

	while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != want) {
		/* Some programs look at nothing but their memory; after a while one has to know. */
		if (milliseconds() - start > 500)
			collect(end);
		sched_yield();
	}
	end->progress = milliseconds();
	verify(end, "write", number, end->memory + FLAGGED, round->length, round->word);
}

static void read_all(struct end *end, uint32_t number, const struct round *round)
{
	uint32_t part = round->length / round->parts & ~7u;

	settle(end);
	memset(end->memory + SCRATCH, 0, round->length);
	for (unsigned i = 0; i < round->parts; i++) {
		uint32_t length = i + 1 < round->parts ? part : round->length - i * part;

		post(end, IBV_WR_RDMA_READ, SCRATCH + i * part, length, SOURCE + i * part, 0, 0);
	}
	settle(end);
	end->messages += round->parts;
	verify(end, "read", number, end->memory + SCRATCH, round->length, end->agreed.seed);
}

static void count(struct end *end, uint32_t number, const struct round *round)
{
	uint64_t *results = (uint64_t *)(end->memory + RESULTS);

	settle(end);
	for (unsigned i = 0; i < round->parts; i++)
		post(end, IBV_WR_ATOMIC_FETCH_AND_ADD, RESULTS + 8 * i, 8, COUNTER, round->word + i, 0);
	settle(end);
	for (unsigned i = 0; i < round->parts; i++) {
		if (results[i] != end->counter)
			give_up(end, WRONG, "counter of round %u: addition %u", number, i);
		end->counter += round->word + i;
	}
	/* One that must swap, and one that must not. */
	post(end, IBV_WR_ATOMIC_CMP_AND_SWP, RESULTS, 8, COUNTER, end->counter, end->counter ^ 1);
	post(end, IBV_WR_ATOMIC_CMP_AND_SWP, RESULTS + 8, 8, COUNTER, end->counter, 0);
	settle(end);
	if (results[0] != end->counter || results[1] != (end->counter ^ 1))
		give_up(end, WRONG, "counter of round %u: swaps", number);
	end->counter ^= 1;
	end->messages += round->parts + 2;
	end->octets += 8 * (round->parts + 2);
}

static void ask_round(struct end *end, uint32_t number)
{
	struct round round = round_of(end, number);

	switch (round.kind) {
	case MESSAGES:
		settle(end);
		send_message(end, 0, round.length, round.word);
		receive_message(end, number, round.back, ~round.word);
		break;
	case FLOOD:
		settle(end);
		for (unsigned i = 0; i < SLOTS; i++)
			send_message(end, i, round.back, round.word + i);
		receive_message(end, number, 16, ~round.word);
		break;
	case WRITES:
		write_flagged(end, &round);
		await_flagged(end, number, &round);
		break;
	case READS:
		read_all(end, number, &round);
		break;
	case ATOMICS:
		count(end, number, &round);
		break;
	case IMMEDIATE:
		settle(end);
		fill(end->memory + SCRATCH, round.length, round.word);
		post(end, IBV_WR_RDMA_WRITE_WITH_IMM, SCRATCH, round.length, FLAGGED,
		     round.word & 0xffffff, 0);
		end->messages++;
		receive_message(end, number, 16, ~round.word);
		break;
	case KINDS:
		break;
	}
}

static void answer_round(struct end *end, uint32_t number)
{
	struct round round = round_of(end, number);
	unsigned slot;

	switch (round.kind) {
	case MESSAGES:
		receive_message(end, number, round.length, round.word);
		settle(end);
		send_message(end, 0, round.back, ~round.word);
		break;
	case FLOOD:
		for (unsigned i = 0; i < SLOTS; i++)
			receive_message(end, number, round.back, round.word + i);
		settle(end);
		send_message(end, 0, 16, ~round.word);
		break;
	case WRITES:
		await_flagged(end, number, &round);
		write_flagged(end, &round);
		break;
	case READS:
		break;
	case ATOMICS:
		for (unsigned i = 0; i < round.parts; i++)
			end->counter += round.word + i;
		end->counter ^= 1;
		break;
	case IMMEDIATE:
		if (next_arrived(end, &slot) != (round.word & 0xffffff))
			give_up(end, WRONG, "immediate data of round %u", number);
		verify(end, "write", number, end->memory + FLAGGED, round.length, round.word);
		post_receive(end, slot);
		settle(end);
		send_message(end, 0, 16, ~round.word);
		break;
	case KINDS:
		break;
	}
}

void ask(struct end *end)
{
	for (uint32_t number = 0; number < end->agreed.rounds; number++)
		ask_round(end, number);
	/* The last word is the server's: it has verified everything, the counter too. */
	settle(end);
	send_message(end, 0, 16, 1);
	receive_message(end, end->agreed.rounds, 16, 2);
}

void answer(struct end *end)
{
	uint64_t counted;

	for (uint32_t number = 0; number < end->agreed.rounds; number++)
		answer_round(end, number);
	receive_message(end, end->agreed.rounds, 16, 1);
	memcpy(&counted, end->memory + COUNTER, 8);
	if (counted != end->counter)
		give_up(end, WRONG, "the counter at the end");
	settle(end);
	/* Whether this one completes well is the peer's choice, who goes when it has it. */
	send_message(end, 0, 16, 2);
}

void prepare(struct end *end)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = SLOTS, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;

	end->progress = milliseconds();
	end->memory = aligned_alloc(4096, (SIZE + 4095) & ~4095);
	if (!end->memory)
		give_up(end, REFUSED, "no memory");
	memset(end->memory, 0, SIZE);
	fill(end->memory + SOURCE, BULK, end->agreed.seed);
	end->completions = ibv_create_comp_channel(end->id->verbs);
	if (!end->completions)
		give_up(end, REFUSED, "ibv_create_comp_channel: %s", strerror(errno));
	end->cq = ibv_create_cq(end->id->verbs, DEPTH + SLOTS, NULL, end->completions, 0);
	if (!end->cq)
		give_up(end, REFUSED, "ibv_create_cq: %s", strerror(errno));
	attr.send_cq = attr.recv_cq = end->cq;
	if (rdma_create_qp(end->id, NULL, &attr))
		give_up(end, REFUSED, "rdma_create_qp: %s", strerror(errno));
	end->mr = ibv_reg_mr(end->id->pd, end->memory, SIZE, access);
	if (!end->mr)
		give_up(end, REFUSED, "ibv_reg_mr: %s", strerror(errno));
	for (unsigned slot = 0; slot < SLOTS; slot++)
		post_receive(end, slot);
}

void expect(struct end *end, enum rdma_cm_event_type type, struct rdma_cm_event *copy)
{
	struct pollfd ready = { end->channel->fd, POLLIN, 0 };
	struct rdma_cm_event *event;
	enum rdma_cm_event_type came;
	int status;

	if (poll(&ready, 1, PATIENCE_MS) != 1)
		give_up(end, HANG, "no %s for %d s", rdma_event_str(type), PATIENCE_MS / 1000);
	if (rdma_get_cm_event(end->channel, &event))
		give_up(end, REFUSED, "rdma_get_cm_event: %s", strerror(errno));
	came = event->event;
	status = event->status;
	if (copy && came == type) {
		*copy = *event;
		if (event->param.conn.private_data_len >= sizeof end->lent)
			memcpy(&end->lent, event->param.conn.private_data, sizeof end->lent);
	}
	rdma_ack_cm_event(event);
	if (came != type)
		give_up(end, came == RDMA_CM_EVENT_DISCONNECTED ? ENDED : REFUSED, "%s (%d) instead of %s",
			rdma_event_str(came), status, rdma_event_str(type));
}

void release(struct end *end)
{
	if (end->id && end->id->qp)
		rdma_destroy_qp(end->id);
	if (end->mr)
		ibv_dereg_mr(end->mr);
	if (end->cq)
		ibv_destroy_cq(end->cq);
	if (end->completions)
		ibv_destroy_comp_channel(end->completions);
	if (end->id)
		rdma_destroy_id(end->id);
	if (end->channel)
		rdma_destroy_event_channel(end->channel);
	free(end->memory);
}
