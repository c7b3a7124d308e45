/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two patterns of programs, by verbs and by TCP in the way of each (patterns.sh).
 *
 *   patterns ring|reads|writes verbs|tcp serve|ADDRESS PORT PIECE ROUNDS
 *
 * ring: as PyTorch's RPC. A tensor of 16 MiB goes there and back. Each end has a ring of PIECE
 * octets at the other, copies into its own what that has room for, and writes it there with
 * immediate data; the other copies it out and acknowledges by a Send without octets. Both poll, and
 * yield where there is nothing. By TCP, the tensor is sent and received as it is.
 *
 * reads, writes: as NIXL on UCX. The peer reads or writes 32 MiB of the owner's in PIECEs, 128 under
 * way. A thread of each end polls, arms its completion queue and looks at the channel without
 * waiting, in a loop; another of the peer's posts, and looks every 2 ms whether all is done. By TCP,
 * the same threads look at the socket without waiting: the peer asks for 64 parts at once, or sends.
 *
 * The client says MiB/s, and the CPU time of each end in ms per GiB.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TENSOR (16ul << 20)
#define MEMORY (32ul << 20)
#define DEPTH 128
#define PARTS 64

/* The way to set up the queue pair and the memory at the other end. */
struct hello {
    union ibv_gid gid;
    uint64_t addr;
    uint32_t rkey, qpn, psn;
};

static int sock, client, verbs;
static size_t piece;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static struct hello theirs;
static char *memory;
/* ring: room at the other end, and octets that have come. */
static size_t room, come, head, tail;
/* reads, writes: octets posted and done of a transfer; 0 done is none. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t posted, done, wanted;
static int reads, over;

static void check(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void say(const void *octets, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = send(sock, (const char *)octets + at, size - at, MSG_NOSIGNAL);
        check(n > 0 || errno == EAGAIN || errno == EINTR, "send");
        at += n > 0 ? n : 0;
    }
}

static void hear(void *octets, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t n = recv(sock, (char *)octets + at, size - at, 0);
        check(n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)), "recv");
        at += n > 0 ? n : 0;
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1e-6 * (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void meet(const char *where, int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    client = strcmp(where, "serve");
    check(!setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "SO_REUSEADDR");
    if (client) {
        check(inet_pton(AF_INET, where, &addr.sin_addr) == 1, "address");
        check(!connect(fd, (struct sockaddr *)&addr, sizeof addr), "connect");
        sock = fd;
    } else {
        check(!bind(fd, (struct sockaddr *)&addr, sizeof addr) && !listen(fd, 1), "listen");
        check((sock = accept(fd, NULL, NULL)) >= 0, "accept");
        close(fd);
    }
    check(!setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "TCP_NODELAY");
    /* Within a host, as the library does: the system's default may pace. */
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    check(!getsockname(sock, (struct sockaddr *)&own, &size), "getsockname");
    if (ntohl(own.sin_addr.s_addr) >> 24 == 127)
        check(!setsockopt(sock, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5), "TCP_CONGESTION");
}

static void post_recv(void)
{
    struct ibv_recv_wr wr = {0}, *bad;
    check(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
}

static void set_up(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    check(pd != NULL, "a device");
    int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    mr = ibv_reg_mr(pd, memory, MEMORY, rights);
    channel = ibv_create_comp_channel(context);
    cq = ibv_create_cq(context, 4 * DEPTH, NULL, channel, 0);
    check(mr && cq && !fcntl(channel->fd, F_SETFL, O_NONBLOCK), "a completion queue");
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1, .cap = {2 * DEPTH, 2 * DEPTH, 1, 1, 0}};
    check((qp = ibv_create_qp(pd, &init)) != NULL, "a queue pair");
    struct hello ours = {.addr = (uintptr_t)memory, .rkey = mr->rkey, .qpn = qp->qp_num,
                         .psn = getpid() & 0xffffff};
    check(!ibv_query_gid(context, 1, 0, &ours.gid), "GID 0");
    say(&ours, sizeof ours);
    hear(&theirs, sizeof theirs);

    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights};
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                        IBV_QP_ACCESS_FLAGS), "INIT");
    for (int i = 0; i < DEPTH; i++)
        post_recv();
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = theirs.qpn,
        .rq_psn = theirs.psn, .max_dest_rd_atomic = 64, .min_rnr_timer = 20,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = theirs.gid, .hop_limit = 1}}};
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                        IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                        IBV_QP_MIN_RNR_TIMER), "RTR");
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
                                .rnr_retry = 7, .sq_psn = ours.psn, .max_rd_atomic = 64};
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                        IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                        IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
    char ready = 1;
    say(&ready, 1);
    hear(&ready, 1);
}

static void post(enum ibv_wr_opcode op, size_t from, size_t to, size_t size)
{
    struct ibv_sge sge = {(uintptr_t)memory + from, size, mr->lkey};
    struct ibv_send_wr wr = {.opcode = op, .sg_list = &sge, .num_sge = size > 0,
                             .imm_data = op == IBV_WR_SEND_WITH_IMM ? to : size,
                             .wr.rdma = {theirs.addr + to, theirs.rkey}}, *bad;
    check(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

/* ---- ring: the outbox is the first part of the memory, the inbox the second. ---- */

static void turn(void)
{
    struct ibv_wc wc[32];
    int n = ibv_poll_cq(cq, 32, wc);
    check(n >= 0, "ibv_poll_cq");
    for (int i = 0; i < n; i++) {
        check(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
        if (wc[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
            come += wc[i].imm_data;
        else if (wc[i].opcode == IBV_WC_RECV)
            room += wc[i].imm_data;
        if (wc[i].opcode & IBV_WC_RECV)
            post_recv();
    }
    if (n == 0)
        sched_yield();
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void give(const char *tensor)
{
    if (!verbs)
        return say(tensor, TENSOR);
    for (size_t at = 0; at < TENSOR;) {
        size_t n = least(least(room, TENSOR - at), piece - head);
        if (n == 0) {
            turn();
            continue;
        }
        memcpy(memory + head, tensor + at, n);
        post(IBV_WR_RDMA_WRITE_WITH_IMM, head, piece + head, n);
        head = (head + n) % piece;
        room -= n;
        at += n;
    }
}

static void take(char *tensor)
{
    if (!verbs)
        return hear(tensor, TENSOR);
    for (size_t at = 0; at < TENSOR;) {
        size_t n = least(least(come, TENSOR - at), piece - tail);
        if (n == 0) {
            turn();
            continue;
        }
        memcpy(tensor + at, memory + piece + tail, n);
        post(IBV_WR_SEND_WITH_IMM, 0, n, 0);
        tail = (tail + n) % piece;
        come -= n;
        at += n;
    }
}

static double ring(int rounds)
{
    char *tensor = malloc(TENSOR), *other = calloc(TENSOR, 1);
    check(tensor && other, "memory");
    for (size_t i = 0; i < TENSOR; i++)
        tensor[i] = i * 7 + i / 4093;
    room = piece;
    double start = now();
    for (int round = 0; round < rounds; round++) {
        if (client)
            give(tensor);
        take(other);
        if (!client)
            give(other);
    }
    double took = now() - start;
    check(!memcmp(tensor, other, TENSOR), "the tensor differs");
    return 2.0 * rounds * (TENSOR >> 20) / took;
}

/* ---- reads, writes ---- */

/* As much as the queue takes; the lock is held. */
static void post_more(void)
{
    while (posted < wanted && posted - done < DEPTH * piece) {
        size_t n = least(piece, wanted - posted);
        post(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, posted, posted, n);
        posted += n;
    }
}

static void progress(void)
{
    struct ibv_wc wc[16];
    int n;
    do {
        pthread_mutex_lock(&lock);
        n = ibv_poll_cq(cq, 16, wc);
        check(n >= 0, "ibv_poll_cq");
        for (int i = 0; i < n; i++) {
            check(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
            done = least(done + piece, wanted);
        }
        post_more();
        pthread_mutex_unlock(&lock);
    } while (n > 0);
}

static void *spin(void *unused)
{
    struct ibv_cq *which;
    void *context;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        progress();
        while (!ibv_get_cq_event(channel, &which, &context))
            ibv_ack_cq_events(which, 1);
        check(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
        struct pollfd fds[2] = {{channel->fd, POLLIN, 0}, {sock, POLLIN, 0}};
        poll(fds, 2, 0);
        if (!client && fds[1].revents)
            break;
    }
    return unused;
}

/* By TCP: a turn of the peer, which wants or has the octets. The lock is held. */
static ssize_t turn_of_peer(void)
{
    static char requests[PARTS][32];
    if (reads && posted == 0 && wanted > 0) {
        say(requests, sizeof requests);
        posted = wanted;
    }
    size_t left = wanted - done;
    if (left == 0)
        return 1;
    return reads ? recv(sock, memory + done, least(left, 1 << 20), MSG_DONTWAIT)
                 : send(sock, memory + done, least(left, 1 << 20), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A turn of the owner, until the peer has ended. */
static int owner_goes_on(void)
{
    char request[32];
    ssize_t n = 1;
    if (reads) {
        n = recv(sock, request, sizeof request, MSG_DONTWAIT);
        posted += n > 0 ? n : 0;
        wanted = posted / sizeof request * (MEMORY / PARTS);
    } else {
        wanted = MEMORY;
    }
    size_t at = done % MEMORY, left = least(least(wanted - done, MEMORY - at), 1 << 20);
    ssize_t moved = 0;
    if (!reads)
        moved = n = recv(sock, memory + at, left, MSG_DONTWAIT);
    else if (left > 0)
        moved = send(sock, memory + at, left, MSG_DONTWAIT | MSG_NOSIGNAL);
    done += moved > 0 ? moved : 0;
    if (!reads && done == MEMORY) {
        done = 0;
        say(request, 1);
    }
    return n != 0;
}

static void *spin_tcp(void *unused)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        struct pollfd fd = {sock, POLLIN | (client != reads ? POLLOUT : 0), 0};
        poll(&fd, 1, 0);
        if (!client && !owner_goes_on())
            break;
        if (client) {
            pthread_mutex_lock(&lock);
            ssize_t n = turn_of_peer();
            check(n != 0, "the owner has gone");
            done += n > 0 && done < wanted ? n : 0;
            pthread_mutex_unlock(&lock);
        }
    }
    return unused;
}

static double transfers(int rounds)
{
    void *(*loop)(void *) = verbs ? spin : spin_tcp;
    if (!client) {
        loop(NULL);
        return 0;
    }
    pthread_t thread;
    check(!pthread_create(&thread, NULL, loop, NULL), "a thread");
    double start = now();
    for (int round = 0; round < rounds; round++) {
        pthread_mutex_lock(&lock);
        posted = done = 0;
        wanted = MEMORY;
        if (verbs)
            post_more();
        pthread_mutex_unlock(&lock);
        for (size_t so_far = 0; so_far < MEMORY; usleep(2000)) {
            pthread_mutex_lock(&lock);
            so_far = done;
            pthread_mutex_unlock(&lock);
        }
        if (!verbs && !reads) {
            char came;
            hear(&came, 1);
        }
    }
    double took = now() - start;
    over = 1;
    pthread_join(thread, NULL);
    return 1.0 * rounds * (MEMORY >> 20) / took;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: patterns ring|reads|writes verbs|tcp serve|ADDRESS PORT PIECE ROUNDS\n");
        return 2;
    }
    int in_ring = !strcmp(argv[1], "ring"), rounds = atoi(argv[6]);
    reads = !strcmp(argv[1], "reads");
    verbs = !strcmp(argv[2], "verbs");
    piece = atoll(argv[5]);
    check(piece > 0 && 2 * piece <= MEMORY && rounds > 0, "sizes");
    check(!posix_memalign((void **)&memory, 4096, MEMORY), "memory");
    memset(memory, 1, MEMORY);
    meet(argv[3], atoi(argv[4]));
    if (verbs)
        set_up();
    double before = cpu();
    double rate = in_ring ? ring(rounds) : transfers(rounds);
    double used = (cpu() - before) * 1e3, other = 0;
    double gib = rounds * (in_ring ? 2 * TENSOR : MEMORY) / (double)(1 << 30);
    if (client) {
        say(&used, 1);
        shutdown(sock, SHUT_WR);
        hear(&other, sizeof other);
        printf("%.0f MiB/s %.0f %.0f\n", rate, used / gib, other / gib);
    } else {
        say(&used, sizeof used);
        char end;
        while (recv(sock, &end, 1, 0) > 0)
            continue;
    }
    return 0;
}
