/* Every step of a connection, as an event. */
#include "learn.h"

/* The next event: its kind is printed, its private data kept. */
static struct rdma_cm_id *next(struct rdma_event_channel *channel, const char *whose, char *said)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	OK(rdma_get_cm_event(channel, &event));
	printf("%s: %s\n", whose, rdma_event_str(event->event));
	if (event->param.conn.private_data_len > 0)
		strncpy(said, event->param.conn.private_data, 15);
	id = event->id;
	OK(rdma_ack_cm_event(event));
	return id;
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attributes = {
		.qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1, .max_recv_wr = 1 } };

	OK(rdma_create_qp(id, NULL, &attributes));
}

static void server(void)
{
	struct rdma_event_channel *channel = HAVE(rdma_create_event_channel());
	struct rdma_conn_param welcome = { .private_data = "welcome", .private_data_len = 8 };
	char name[16] = "";
	struct rdma_cm_id *peer;

	print_later();
	OK(rdma_migrate_id(listener, channel));
	peer = next(channel, "server", name);
	printf("server: %s is refused\n", name);
	OK(rdma_reject(peer, "no guests", 10));

	peer = next(channel, "server", name);
	printf("server: %s is accepted\n", name);
	create_qp(peer);
	OK(rdma_accept(peer, &welcome));
	next(channel, "server", name);
	next(channel, "server", name);
}

static void client(void)
{
	const char *names[] = { "guest", "member" };

	for (int i = 0; i < 2; i++) {
		struct rdma_event_channel *channel = HAVE(rdma_create_event_channel());
		struct rdma_conn_param param = { .private_data = names[i], .private_data_len = 7 };
		struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP }, *found;
		char said[16] = "";
		struct rdma_cm_id *id;

		OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
		OK(rdma_getaddrinfo(address, port, &hints, &found));
		OK(rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000));
		next(channel, "client", said);
		OK(rdma_resolve_route(id, 2000));
		next(channel, "client", said);
		create_qp(id);
		OK(rdma_connect(id, &param));
		next(channel, "client", said);
		printf("client: the server says %s\n", said);
		if (i == 1)
			OK(rdma_disconnect(id));
	}
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, 1);
}
