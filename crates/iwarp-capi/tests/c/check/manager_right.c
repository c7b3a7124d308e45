/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The connection manager makes a protection domain of its own, which the program does not have to
 * deallocate. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include "check.h"

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rdma_event_channel *events = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(events && rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 5000) == 0);
	CHECK(rdma_get_cm_event(events, &event) == 0);
	CHECK(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && rdma_ack_cm_event(event) == 0);
	CHECK(id->verbs && id->pd);
	pd = ibv_alloc_pd(id->verbs);
	CHECK(pd && ibv_dealloc_pd(pd) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(events);
	return 0;
}
