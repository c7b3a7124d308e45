// SPDX-License-Identifier: MIT OR Apache-2.0
// Yardsticks within one host, beside which interop/local-programs.sh puts unmodified programs: a
// copy in one process, one call that copies to another process, and raw TCP that polls.
//
//   anchors copy BYTES | cma BYTES | tcp-latency | tcp BYTES
//
// Prints one number: GB/s, or for the latency µs for half a round trip of 4 bytes. The first end
// runs on CPU 0, the other on CPU 1.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 0.5

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void on_cpu(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
}

static char *memory(size_t len) {
    char *found = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
    if (!found) fail("aligned_alloc");
    memset(found, 1, len);
    return found;
}

// Two sockets that are connected by way of the loopback interface.
static void connected(int ends[2]) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, sizeof at) || listen(listener, 1)) fail("listen");
    if (getsockname(listener, (void *)&at, &len)) fail("getsockname");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&at, sizeof at)) fail("connect");
    ends[1] = accept(listener, NULL, NULL);
    for (int end = 0; end < 2; end++) {
        setsockopt(ends[end], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        fcntl(ends[end], F_SETFL, O_NONBLOCK);
    }
}

static void move(int fd, char *bytes, size_t len, int out) {
    while (len > 0) {
        ssize_t moved = out ? send(fd, bytes, len, MSG_NOSIGNAL) : recv(fd, bytes, len, 0);
        if (moved == 0) exit(0);
        if (moved > 0) {
            bytes += moved;
            len -= moved;
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    size_t len = argc > 2 ? strtoul(argv[2], NULL, 10) : 4;
    char *from = memory(len), *to = memory(len);
    int ends[2] = {-1, -1}, is_tcp = !strncmp(argv[1], "tcp", 3);
    int is_latency = !strcmp(argv[1], "tcp-latency"), is_cma = !strcmp(argv[1], "cma");
    if (is_tcp) connected(ends);
    pid_t other = strcmp(argv[1], "copy") ? fork() : 0;
    if (other == 0 && strcmp(argv[1], "copy")) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        on_cpu(1);
        memset(to, 2, len);
        if (is_cma) pause();
        close(ends[0]);
        for (;;) {
            move(ends[1], to, len, 0);
            if (is_latency) move(ends[1], to, len, 1);
        }
    }
    on_cpu(0);
    usleep(20000);
    // The first half warms the caches and the connection.
    double begun = now();
    long count = 0;
    for (int half = 0; half < 2; half++) {
        for (begun = now(), count = 0; now() - begun < SECONDS; count++) {
            if (is_tcp) {
                move(ends[0], from, len, 1);
                if (is_latency) move(ends[0], from, len, 0);
            } else if (is_cma) {
                struct iovec own = {from, len}, others = {to, len};
                if (process_vm_writev(other, &own, 1, &others, 1, 0) != (ssize_t)len) fail("cma");
            } else {
                memcpy(to, from, len);
                __asm__ volatile("" : : "r"(to) : "memory");
            }
        }
    }
    double took = now() - begun;
    if (other > 0) kill(other, SIGKILL);
    printf("%.3f\n", is_latency ? took / count / 2 * 1e6 : count * (double)len / took / 1e9);
    return 0;
}
