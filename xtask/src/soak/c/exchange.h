/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* One connection of `traffic`: what is exchanged on it, and how it is verified. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

/* The end of a connection, the worse the further below; also exit statuses. */
enum outcome {
	DONE,
	/* A completion or an event says that the connection is gone. */
	ENDED,
	/* There was no connection to begin with. */
	REFUSED,
	/* Nothing happened for longer than anything may take. */
	HANG,
	/* Bytes are not what they must be, or a count. */
	WRONG,
};

/* Both ends draw the same rounds from the same seed. */
struct agreed {
	uint64_t seed;
	uint32_t rounds;
};

/* Where the other end's memory is. */
struct lent {
	uint64_t address;
	uint32_t rkey;
};

struct end {
	struct rdma_cm_id *id;
	struct rdma_event_channel *channel;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory;

	struct agreed agreed;
	struct lent lent;
	/* Sleeps for completions instead of asking again and again. */
	int sleeps;

	unsigned under_way;
	uint32_t arrived[64];
	unsigned first_arrived, n_arrived;
	uint64_t progress;
	uint64_t counter;

	uint64_t messages, octets;
	enum outcome outcome;
	char why[200];
	jmp_buf out;
};

uint64_t milliseconds(void);

/* Notes how it ends, and leaves to where `out` was set. */
_Noreturn void give_up(struct end *end, enum outcome outcome, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Makes queues and memory for an id, and posts the receives. */
void prepare(struct end *end);

/* The next event of the connection manager, which has to be of that type. */
void expect(struct end *end, enum rdma_cm_event_type type, struct rdma_cm_event *copy);

/* All rounds, as the end that asks or as the one that answers. */
void ask(struct end *end);
void answer(struct end *end);

/* Gives everything back, in whatever state it is. */
void release(struct end *end);

#endif
