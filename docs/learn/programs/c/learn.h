/* What all programs of the book share: two processes that find each other. See chapter 7. */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

/* Ends the program with the failed call, unless it went well. */
#define OK(call) ((call) ? fail(#call) : (void)0)
#define HAVE(call) have(call, #call)

static inline void fail(const char *call)
{
	fprintf(stderr, "%s: %s\n", call, strerror(errno));
	exit(1);
}

static inline void *have(void *made, const char *call)
{
	if (!made)
		fail(call);
	return made;
}

/* What one end tells the other of its memory. */
struct grant {
	uint64_t address;
	uint32_t key, length;
};

static const char *address = "127.0.0.1";
static char port[6] = "7471";
static struct rdma_cm_id *listener;

/* An id for `flags` (RAI_PASSIVE: one that listens), with a queue pair of 16 requests each way. */
static inline struct rdma_cm_id *new_id(int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr attributes = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct rdma_cm_id *id;

	OK(rdma_getaddrinfo(address, port, &hints, &found));
	OK(rdma_create_ep(&id, found, NULL, &attributes));
	rdma_freeaddrinfo(found);
	return id;
}

/* The client's next connection, not yet made; the server's, not yet accepted. */
static inline struct rdma_cm_id *to_server(void)
{
	return new_id(0);
}

static inline struct rdma_cm_id *next_request(void)
{
	struct rdma_cm_id *id;

	OK(rdma_get_request(listener, &id));
	return id;
}

/* Waits for the next completion of a queue, which must be a success. */
static inline struct ibv_wc finished(struct rdma_cm_id *id,
				     int (*next)(struct rdma_cm_id *, struct ibv_wc *))
{
	struct ibv_wc wc;

	if (next(id, &wc) < 1)
		fail("waiting for a completion");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

#define received(id) finished(id, rdma_get_recv_comp)
#define sent(id) finished(id, rdma_get_send_comp)

/* Accepts a connection and sends the peer a grant of the whole region. */
static inline void accept_and_grant(struct rdma_cm_id *peer, struct ibv_mr *region)
{
	struct grant grant = { (uintptr_t)region->addr, region->rkey, region->length };
	struct ibv_mr *memory = HAVE(rdma_reg_msgs(peer, &grant, sizeof grant));

	OK(rdma_accept(peer, NULL));
	OK(rdma_post_send(peer, NULL, &grant, sizeof grant, memory, 0));
	sent(peer);
	OK(rdma_dereg_mr(memory));
}

/* Connects and receives what the server grants. */
static inline struct grant connect_for_grant(struct rdma_cm_id *server)
{
	struct grant grant;
	struct ibv_mr *memory = HAVE(rdma_reg_msgs(server, &grant, sizeof grant));

	OK(rdma_post_recv(server, NULL, &grant, sizeof grant, memory));
	OK(rdma_connect(server, NULL));
	received(server);
	OK(rdma_dereg_mr(memory));
	return grant;
}

/* Messages without bytes: to be told something, and to tell it. */
static inline void expect_word(struct rdma_cm_id *id)
{
	OK(rdma_post_recvv(id, NULL, NULL, 0));
}

static inline void send_word(struct rdma_cm_id *id)
{
	OK(rdma_post_sendv(id, NULL, NULL, 0, 0));
	sent(id);
}

/* From now on what this end prints appears when it exits: else two ends that are busy at the same
 * time would mix their lines, each time in another way. */
static inline void print_later(void)
{
	static char lines[4096];

	setvbuf(stdout, lines, _IOFBF, sizeof lines);
}

/*
 * Runs both functions, each in a process of its own, the second so many times:
 *
 *   ./program               both ends here, over 127.0.0.1
 *   ./program ADDRESS       both ends here, over an address of this machine
 *   ./program serve         the server alone, on any address
 *   ./program to ADDRESS    a client alone
 */
static inline int learn(int argc, char **argv, void (*server)(void), void (*client)(void),
			int clients)
{
	int both = argc < 3 && !(argc == 2 && !strcmp(argv[1], "serve"));
	int tell[2], status = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1)
		address = both ? argv[1] : argc == 3 ? argv[2] : NULL;
	if (argc == 3) {
		client();
		return 0;
	}
	OK(pipe(tell));
	for (int number = 0; both && number < clients; number++)
		if (fork() == 0) {
			/* The server says its port as soon as it listens. */
			if (read(tell[0], port, sizeof port) < 1)
				fail("the server's port");
			client();
			exit(0);
		}
	if (both)
		strcpy(port, "0");
	listener = new_id(RAI_PASSIVE);
	OK(rdma_listen(listener, 16));
	snprintf(port, sizeof port, "%u", ntohs(rdma_get_src_port(listener)));
	for (int number = 0; both && number < clients; number++)
		if (write(tell[1], port, sizeof port) < 1)
			fail("telling the port");
	server();
	for (int one; wait(&one) > 0;)
		status |= one;
	return status != 0;
}
