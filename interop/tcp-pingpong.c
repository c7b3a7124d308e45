/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Half a round trip of raw TCP over loopback, in microseconds: the median. What perftest's latency
 * is measured against (perftest-latency.sh).
 *
 *   tcp-pingpong spin|block|apart COUNT OCTETS
 *
 * `apart` blocks as well, each process on a CPU of its own (0 and 1): left to the scheduler they may
 * share one, which is another thing altogether.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "yardstick.h"

static void set_up(int fd, int spins)
{
    int one = 1;
    check(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "TCP_NODELAY");
    if (spins)
        check(!fcntl(fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
}

static void receive(int fd, char *octets, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = recv(fd, octets + done, size - done, 0);
        check(n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)), "recv");
        done += n > 0 ? n : 0;
    }
}

static void say(int fd, const char *octets, size_t size)
{
    check(send(fd, octets, size, MSG_NOSIGNAL) == (ssize_t)size, "send");
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: tcp-pingpong spin|block|apart COUNT OCTETS\n");
        return 2;
    }
    int spins = !strcmp(argv[1], "spin"), apart = !strcmp(argv[1], "apart"), count = atoi(argv[2]);
    size_t size = atoi(argv[3]);
    char *octets = calloc(size, 1);
    double *times = calloc(count, sizeof *times);
    check(octets && times && count > 0 && size > 0, "memory");

    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(!bind(listener, (struct sockaddr *)&addr, len), "bind");
    check(!listen(listener, 1), "listen");
    check(!getsockname(listener, (struct sockaddr *)&addr, &len), "getsockname");

    pid_t child = fork();
    check(child >= 0, "fork");
    if (apart)
        stay_on(child == 0);
    if (child == 0) {
        int fd = accept(listener, NULL, NULL);
        check(fd >= 0, "accept");
        set_up(fd, spins);
        for (int i = 0; i < count; i++) {
            receive(fd, octets, size);
            say(fd, octets, size);
        }
        return 0;
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(!connect(fd, (struct sockaddr *)&addr, len), "connect");
    set_up(fd, spins);
    for (int i = 0; i < count; i++) {
        double start = now();
        say(fd, octets, size);
        receive(fd, octets, size);
        times[i] = (now() - start) / 2;
    }
    print_median(times, count);
    waitpid(child, NULL, 0);
    return 0;
}
