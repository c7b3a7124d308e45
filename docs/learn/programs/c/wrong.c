/* Four mistakes, and how each shows. */
#include "learn.h"

enum { BEYOND_THE_END, WRONG_KEY, WRITE_WITHOUT_RIGHT, TOO_LONG, MISTAKES };

static void server(void)
{
	print_later();
	/* A failed connection does not work again: each mistake gets one of its own. */
	for (int mistake = 0; mistake < MISTAKES; mistake++) {
		struct rdma_cm_id *peer = next_request();
		static char table[64], small[4];
		struct ibv_mr *region = HAVE(rdma_reg_read(peer, table, sizeof table));
		struct ibv_mr *memory = HAVE(rdma_reg_msgs(peer, small, sizeof small));
		struct grant grant = { (uintptr_t)table, region->rkey, sizeof table };
		struct ibv_mr *from = HAVE(rdma_reg_msgs(peer, &grant, sizeof grant));
		struct ibv_wc wc;

		OK(rdma_post_recv(peer, NULL, small, sizeof small, memory));
		OK(rdma_accept(peer, NULL));
		/* Its completion is not waited for: the client's mistake may come before it. */
		OK(rdma_post_send(peer, NULL, &grant, sizeof grant, from, 0));
		if (rdma_get_recv_comp(peer, &wc) < 1)
			fail("waiting for a completion");
		printf("server: the receive: %s\n", ibv_wc_status_str(wc.status));
	}
}

static void make(int mistake, const char *name)
{
	struct rdma_cm_id *server = to_server();
	struct grant to = connect_for_grant(server);
	static char bytes[128];
	struct ibv_mr *memory = HAVE(rdma_reg_msgs(server, bytes, sizeof bytes));
	struct ibv_wc wc;

	if (mistake == BEYOND_THE_END)
		OK(rdma_post_read(server, NULL, bytes, 128, memory, 0, to.address, to.key));
	else if (mistake == WRONG_KEY)
		OK(rdma_post_read(server, NULL, bytes, 64, memory, 0, to.address, to.key + 1));
	else if (mistake == WRITE_WITHOUT_RIGHT)
		OK(rdma_post_write(server, NULL, bytes, 64, memory, 0, to.address, to.key));
	else
		OK(rdma_post_send(server, NULL, bytes, 64, memory, 0));
	if (rdma_get_send_comp(server, &wc) < 1)
		fail("waiting for a completion");
	printf("client: %s: %s\n", name, ibv_wc_status_str(wc.status));
}

static void client(void)
{
	make(BEYOND_THE_END, "a Read beyond the end");
	make(WRONG_KEY, "a Read with a wrong key");
	make(WRITE_WITHOUT_RIGHT, "a Write where only Reads are granted");
	make(TOO_LONG, "a message longer than the receive");
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, 1);
}
