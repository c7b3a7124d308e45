// SPDX-License-Identifier: MIT OR Apache-2.0
/* A program that listens by RDMA and by TCP of its own under one port number, as UCX does. */
#include "cm.h"

struct place {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t length;
};

/* All addresses of a family, or the loopback's. */
static struct place make_place(int family, int all, uint16_t port)
{
	struct place place = { .v6 = { .sin6_family = family } };

	if (family == AF_INET) {
		place.v4.sin_port = htons(port);
		place.v4.sin_addr.s_addr = htonl(all ? INADDR_ANY : INADDR_LOOPBACK);
		place.length = sizeof(place.v4);
	} else {
		place.v6.sin6_port = htons(port);
		place.v6.sin6_addr = all ? in6addr_any : in6addr_loopback;
		place.length = sizeof(place.v6);
	}
	return place;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage addr;
	socklen_t length = sizeof(addr);

	CHECK(getsockname(fd, (struct sockaddr *)&addr, &length) == 0);
	return ntohs(((struct sockaddr_in *)&addr)->sin_port);
}

static int tcp_bound(struct place *place)
{
	int fd = socket(place->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	CHECK(bind(fd, &place->any, place->length) == 0);
	return fd;
}

static struct rdma_cm_id *rdma_bound(struct rdma_event_channel *channel, struct place *place)
{
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, &place->any) == 0);
	return id;
}

/* A client of TCP, to which the server speaks first. */
static void meet_by_tcp(int listener, int family)
{
	struct place there = make_place(family, 0, port_of(listener));
	int client = socket(family, SOCK_STREAM, 0), server;
	char got[5];

	CHECK(client >= 0 && connect(client, &there.any, there.length) == 0);
	CHECK(readable(listener, DEADLINE_MS));
	server = accept(listener, NULL, NULL);
	CHECK(server >= 0);
	CHECK(write(server, "hello", 5) == 5);
	CHECK(readable(client, DEADLINE_MS) && recv(client, got, 5, MSG_WAITALL) == 5);
	CHECK(memcmp(got, "hello", 5) == 0);
	/* The client's end lingers, not the port. */
	close(client);
	close(server);
}

static void meet_by_rdma(struct rdma_event_channel *channel, struct rdma_cm_id *listener, int family)
{
	struct place there = make_place(family, 0, ntohs(rdma_get_src_port(listener)));
	struct rdma_conn_param param = params("by RDMA");
	struct rdma_event_channel *own = rdma_create_event_channel();
	struct rdma_cm_id *client, *server;
	struct rdma_cm_event *event;

	CHECK(own && rdma_create_id(own, &client, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(client, NULL, &there.any, 2000) == 0);
	pass(own, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(client, 2000) == 0);
	pass(own, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(client);
	CHECK(rdma_connect(client, &param) == 0);
	event = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(event->listen_id == listener);
	CHECK(memcmp(event->param.conn.private_data, "by RDMA", 7) == 0);
	server = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	make_qp(server);
	CHECK(rdma_accept(server, &param) == 0);
	pass(channel, RDMA_CM_EVENT_ESTABLISHED);
	pass(own, RDMA_CM_EVENT_ESTABLISHED);
	CHECK(rdma_disconnect(client) == 0);
	pass(own, RDMA_CM_EVENT_DISCONNECTED);
	pass(channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(client);
	rdma_destroy_qp(server);
	CHECK(rdma_destroy_id(client) == 0 && rdma_destroy_id(server) == 0);
	rdma_destroy_event_channel(own);
}

static void meet(struct rdma_event_channel *channel, struct rdma_cm_id *id, int fd, int family)
{
	struct place same = make_place(family, 0, port_of(fd));
	struct rdma_cm_id *second;
	int i;

	CHECK(ntohs(rdma_get_src_port(id)) == port_of(fd));
	for (i = 0; i < 4; i++) {
		meet_by_tcp(fd, family);
		meet_by_rdma(channel, id, family);
	}
	nothing(channel);
	/* Two of a kind are one too many. */
	CHECK(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_bind_addr(second, &same.any), EADDRINUSE);
	CHECK(rdma_destroy_id(second) == 0);
}

/* Calls `listen_both` for all kinds of addresses. */
static void everywhere(void (*listen_both)(struct rdma_event_channel *, int family, int all))
{
	struct rdma_event_channel *channel = rdma_create_event_channel();

	CHECK(channel);
	listen_both(channel, AF_INET, 0);
	listen_both(channel, AF_INET, 1);
	listen_both(channel, AF_INET6, 0);
	listen_both(channel, AF_INET6, 1);
	rdma_destroy_event_channel(channel);
}

static void rdma_first(struct rdma_event_channel *channel, int family, int all)
{
	struct place place = make_place(family, all, 0);
	struct rdma_cm_id *id = rdma_bound(channel, &place);
	int fd, again;

	CHECK(rdma_listen(id, 8) == 0);
	meet_by_rdma(channel, id, family);
	place = make_place(family, all, ntohs(rdma_get_src_port(id)));
	/* TCP may come and go. */
	for (again = 0; again < 2; again++) {
		fd = tcp_bound(&place);
		meet_by_rdma(channel, id, family);
		CHECK(listen(fd, 8) == 0);
		meet(channel, id, fd, family);
		close(fd);
		meet_by_rdma(channel, id, family);
	}
	CHECK(rdma_destroy_id(id) == 0);
}

static void tcp_first(struct rdma_event_channel *channel, int family, int all)
{
	struct place place = make_place(family, all, 0);
	int fd = tcp_bound(&place), again;
	struct rdma_cm_id *id;

	CHECK(listen(fd, 8) == 0);
	meet_by_tcp(fd, family);
	place = make_place(family, all, port_of(fd));
	/* RDMA may come and go. */
	for (again = 0; again < 2; again++) {
		id = rdma_bound(channel, &place);
		meet_by_tcp(fd, family);
		CHECK(rdma_listen(id, 8) == 0);
		meet(channel, id, fd, family);
		CHECK(rdma_destroy_id(id) == 0);
		meet_by_tcp(fd, family);
	}
	close(fd);
}

static void both_bound(struct rdma_event_channel *channel, int family, int all)
{
	int order;

	for (order = 0; order < 2; order++) {
		struct place place = make_place(family, all, 0);
		struct rdma_cm_id *id = rdma_bound(channel, &place);
		int fd;

		place = make_place(family, all, ntohs(rdma_get_src_port(id)));
		fd = tcp_bound(&place);
		if (order == 0)
			CHECK(listen(fd, 8) == 0);
		CHECK(rdma_listen(id, 8) == 0);
		if (order == 1)
			CHECK(listen(fd, 8) == 0);
		meet(channel, id, fd, family);
		close(fd);
		CHECK(rdma_destroy_id(id) == 0);
	}
}

/* A TCP socket that lets others in was there before anybody listened. */
static void reused(struct rdma_event_channel *channel, int family, int all)
{
	struct place place = make_place(family, all, 0);
	int fd = socket(family, SOCK_STREAM, 0), one = 1;
	struct rdma_cm_id *id;

	CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
	CHECK(bind(fd, &place.any, place.length) == 0);
	place = make_place(family, all, port_of(fd));
	id = rdma_bound(channel, &place);
	CHECK(rdma_listen(id, 8) == 0);
	CHECK(listen(fd, 8) == 0);
	meet(channel, id, fd, family);
	close(fd);
	CHECK(rdma_destroy_id(id) == 0);
}

static void start_with_rdma(void)
{
	everywhere(rdma_first);
}

static void start_with_tcp(void)
{
	everywhere(tcp_first);
}

static void bind_before(void)
{
	everywhere(both_bound);
}

static void let_others_in(void)
{
	everywhere(reused);
}

/* RDMA at one of the addresses at which the program's own socket is, as Valkey does. */
static void at_one_of_all(int family, int dual)
{
	struct rdma_event_channel *channel = rdma_create_event_channel(), *own;
	int fd = socket(dual ? AF_INET6 : family, SOCK_STREAM, 0), only = !dual;
	struct place all = make_place(dual ? AF_INET6 : family, 1, 0), one;
	struct rdma_conn_param param = params(NULL);
	struct rdma_cm_id *id, *client;
	struct rdma_cm_event *event;
	struct sockaddr *local;

	CHECK(channel && fd >= 0);
	if (all.any.sa_family == AF_INET6)
		CHECK(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only)) == 0);
	CHECK(bind(fd, &all.any, all.length) == 0 && listen(fd, 8) == 0);
	one = make_place(family, 0, port_of(fd));
	id = rdma_bound(channel, &one);
	local = rdma_get_local_addr(id);
	CHECK(local->sa_family == family);
	if (family == AF_INET)
		CHECK(((struct sockaddr_in *)local)->sin_addr.s_addr == one.v4.sin_addr.s_addr);
	meet_by_tcp(fd, family);
	CHECK(rdma_listen(id, 8) == 0);
	meet(channel, id, fd, family);
	if (family == AF_INET) {
		/* Nobody listens by RDMA at another address. */
		own = rdma_create_event_channel();
		one.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
		CHECK(rdma_create_id(own, &client, NULL, RDMA_PS_TCP) == 0);
		CHECK(rdma_resolve_addr(client, NULL, &one.any, 2000) == 0);
		pass(own, RDMA_CM_EVENT_ADDR_RESOLVED);
		CHECK(rdma_resolve_route(client, 2000) == 0);
		pass(own, RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_qp(client);
		if (rdma_connect(client, &param) == 0) {
			CHECK(rdma_get_cm_event(own, &event) == 0);
			CHECK(event->event != RDMA_CM_EVENT_ESTABLISHED);
			CHECK(rdma_ack_cm_event(event) == 0);
		}
		rdma_destroy_qp(client);
		CHECK(rdma_destroy_id(client) == 0);
		rdma_destroy_event_channel(own);
		nothing(channel);
	}
	CHECK(rdma_destroy_id(id) == 0);
	meet_by_tcp(fd, family);
	close(fd);
	rdma_destroy_event_channel(channel);
}

static void one_of_all(void)
{
	at_one_of_all(AF_INET, 0);
	at_one_of_all(AF_INET6, 0);
	at_one_of_all(AF_INET, 1);
	at_one_of_all(AF_INET6, 1);
}

/* Where the program's own socket would take connections from the listener, or the other way round. */
static void unlike(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct place local = make_place(AF_INET, 0, 0), all;
	struct rdma_cm_id *id = rdma_bound(channel, &local);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(rdma_listen(id, 8) == 0);
	all = make_place(AF_INET, 1, ntohs(rdma_get_src_port(id)));
	FAILS(bind(fd, &all.any, all.length), EADDRINUSE);
	meet_by_rdma(channel, id, AF_INET);
	/* Other errors are as ever. */
	FAILS(bind(-1, &all.any, all.length), EBADF);
	FAILS(bind(fd, &all.any, 1), EINVAL);
	close(fd);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(channel);
}

MAIN({ "rdma-first", start_with_rdma }, { "tcp-first", start_with_tcp },
     { "bound-first", bind_before }, { "reused", let_others_in },
     { "one-of-all", one_of_all }, { "unlike", unlike })
