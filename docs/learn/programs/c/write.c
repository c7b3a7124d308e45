/* The client writes into the server's memory. */
#include "learn.h"

static void server(void)
{
	struct rdma_cm_id *peer = next_request();
	char board[64] = "(nothing yet)";
	struct ibv_mr *region = HAVE(rdma_reg_write(peer, board, sizeof board));
	struct grant grant = { (uintptr_t)board, region->rkey, sizeof board };
	struct ibv_mr *memory = HAVE(rdma_reg_msgs(peer, &grant, sizeof grant));

	/* A receive without bytes: only to be told when to look. */
	expect_word(peer);
	OK(rdma_accept(peer, NULL));
	printf("server: the board says %s\n", board);
	OK(rdma_post_send(peer, NULL, &grant, sizeof grant, memory, 0));
	sent(peer);
	received(peer);
	printf("server: the board says %s\n", board);
}

static void client(void)
{
	struct rdma_cm_id *server = to_server();
	struct grant grant;
	struct ibv_mr *into = HAVE(rdma_reg_msgs(server, &grant, sizeof grant));
	char news[] = "Hello, board!";
	struct ibv_mr *from = HAVE(rdma_reg_msgs(server, news, sizeof news));

	OK(rdma_post_recv(server, NULL, &grant, sizeof grant, into));
	OK(rdma_connect(server, NULL));
	received(server);
	printf("client: may write %u bytes\n", grant.length);

	/* Where: the address there. By which right: the key. */
	OK(rdma_post_write(server, NULL, news, sizeof news, from, 0, grant.address, grant.key));
	sent(server);
	/* The server has noticed nothing. A message tells it, and arrives after the Write. */
	send_word(server);
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, 1);
}
