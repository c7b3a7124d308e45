/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Destroys what it has taken events of and not acknowledged: that waits, and says for what. Then it
 * acknowledges them, and the waiting ends.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "pair.h"

static int said[2];

static void *destroy_id(void *id)
{
	CHECK(rdma_destroy_id(id) == 0);
	return NULL;
}

static void *destroy_cq(void *cq)
{
	CHECK(ibv_destroy_cq(cq) == 0);
	return NULL;
}

/* Begins the call, and returns when the library has said something with that text. */
static pthread_t waits(void *(*call)(void *), void *object, const char *text)
{
	char line[1024];
	size_t length = 0;
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, call, object) == 0);
	do {
		CHECK(length + 1 < sizeof line && read(said[0], line + length, 1) == 1);
	} while (line[length++] != '\n');
	line[length] = 0;
	printf("%s", line);
	if (!strstr(line, text))
		exit(3);
	return thread;
}

int main(void)
{
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(7777) };
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_cq *cq;
	void *any;
	pthread_t thread;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	/* A pipe takes the place of standard error: what the library says wakes this thread. */
	CHECK(pipe(said) == 0 && dup2(said[1], 2) == 2);
	CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 1000) == 0);
	CHECK(rdma_get_cm_event(events, &event) == 0);
	thread = waits(destroy_id, id, "rdma_ack_cm_event");
	CHECK(rdma_ack_cm_event(event) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	rdma_destroy_event_channel(events);

	open_context();
	meet();
	CHECK(ibv_req_notify_cq(b.cq, 0) == 0);
	receive(&b, 1, 0, 8);
	struct ibv_sge sge = part(&a, 0, 8);
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

	CHECK(ibv_post_send(a.qp, &wr, &bad) == 0);
	CHECK(ibv_get_cq_event(channel, &cq, &any) == 0 && cq == b.cq);
	CHECK(ibv_destroy_qp(b.qp) == 0);
	thread = waits(destroy_cq, b.cq, "ibv_ack_cq_events");
	ibv_ack_cq_events(cq, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	return 0;
}
