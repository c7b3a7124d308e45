/* Memory is registered; what a peer may do with it depends on the key. */
#include "learn.h"

int main(void)
{
	struct ibv_context *device;
	struct ibv_device **list = HAVE(ibv_get_device_list(NULL));
	struct ibv_mr *open, *shut, *bad;
	struct ibv_pd *pd;
	static char board[4096];

	if (!list[0]) {
		fprintf(stderr, "no RDMA device: did you start this by `iwarp run`?\n");
		return 1;
	}
	device = HAVE(ibv_open_device(list[0]));
	pd = HAVE(ibv_alloc_pd(device));

	/* The same bytes twice: once for everybody, once for this program alone. */
	open = HAVE(ibv_reg_mr(pd, board, sizeof board,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	shut = HAVE(ibv_reg_mr(pd, board, sizeof board, IBV_ACCESS_LOCAL_WRITE));
	printf("registered %zu bytes, and again %zu bytes\n", open->length, shut->length);
	printf("the keys are %s\n", open->rkey == shut->rkey ? "equal" : "different");

	/* It is still ordinary memory. */
	strcpy(board, "as ever");
	printf("the program writes and reads it %s\n", board);

	/* What peers may write, this end must be allowed to write. */
	bad = ibv_reg_mr(pd, board, sizeof board, IBV_ACCESS_REMOTE_WRITE);
	printf("for peers to write, but not for us: %s\n", bad ? "registered" : "refused");

	/* From now on the keys open nothing. */
	OK(ibv_dereg_mr(open));
	OK(ibv_dereg_mr(shut));
	printf("deregistered\n");
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(device));
	ibv_free_device_list(list);
	return 0;
}
