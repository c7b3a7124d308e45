/* A question and its answer: Send and Receive, and what completes. */
#include "learn.h"

#include <ctype.h>

static void server(void)
{
	struct rdma_cm_id *peer = next_request();
	char text[64];
	struct ibv_mr *memory = HAVE(rdma_reg_msgs(peer, text, sizeof text));
	struct ibv_wc wc;

	/* First the receive, then the connection: the peer may send at once. */
	OK(rdma_post_recv(peer, (void *)7, text, sizeof text, memory));
	OK(rdma_accept(peer, NULL));
	wc = received(peer);
	printf("server: request %d is complete, %u bytes: %.*s\n", (int)wc.wr_id, wc.byte_len,
	       (int)wc.byte_len, text);

	for (unsigned i = 0; i < wc.byte_len; i++)
		text[i] = toupper(text[i]);
	OK(rdma_post_send(peer, (void *)8, text, wc.byte_len, memory, 0));
	sent(peer);
}

static void client(void)
{
	struct rdma_cm_id *server = to_server();
	char question[] = "hello", answer[64];
	struct ibv_mr *from = HAVE(rdma_reg_msgs(server, question, sizeof question));
	struct ibv_mr *into = HAVE(rdma_reg_msgs(server, answer, sizeof answer));
	struct ibv_wc wc;

	OK(rdma_post_recv(server, (void *)1, answer, sizeof answer, into));
	OK(rdma_connect(server, NULL));
	OK(rdma_post_send(server, (void *)2, question, strlen(question), from, 0));
	sent(server);
	wc = received(server);
	printf("client: request %d is complete, %u bytes: %.*s\n", (int)wc.wr_id, wc.byte_len,
	       (int)wc.byte_len, answer);
}

int main(int argc, char **argv)
{
	return learn(argc, argv, server, client, 1);
}
