/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What queue pairs over UDP are measured against (roce-speed.sh): plain UDP over loopback, with no
 * protocol above it.
 *
 *   udp-yardstick spin|crc COUNT OCTETS    half a round trip, in microseconds: the median
 *   udp-yardstick list SECONDS OCTETS      datagrams per second, sent by sendmmsg in lists of 32
 *
 * The sender has CPU 0, the receiver CPU 1; both spin. `crc` computes a CRC-32 of what a packet with
 * so many bytes covers when a datagram is sent, and another when it has come: 60 bytes of headers
 * over those of the message. Build with -lz.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "yardstick.h"

/* BTH 12, DETH 8, ICRC 4: what a UD packet has besides the message. */
#define AROUND 24
#define COVERED 60
#define LIST 32
#define LONGEST 4096

static int bound(struct sockaddr_in *addr)
{
    socklen_t len = sizeof *addr;
    int size = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    *addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    check(fd >= 0 && !bind(fd, (struct sockaddr *)addr, len), "bind");
    check(!getsockname(fd, (struct sockaddr *)addr, &len), "getsockname");
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    return fd;
}

static char packet[LONGEST + COVERED];
static volatile unsigned long crc;

static void cover(int with, size_t octets)
{
    if (with)
        crc = crc32(crc, (const unsigned char *)packet, octets + COVERED);
}

static void receive(int fd, int with, size_t octets)
{
    while (recv(fd, packet, sizeof packet, 0) < 0)
        check(errno == EAGAIN, "recv");
    cover(with, octets);
}

static void say(int fd, const struct sockaddr_in *to, int with, size_t octets)
{
    cover(with, octets);
    check(sendto(fd, packet, octets + AROUND, 0, (const struct sockaddr *)to, sizeof *to) > 0,
          "sendto");
}

static void ping(int fd, const struct sockaddr_in *to, int with, int count, size_t octets)
{
    double *times = calloc(count, sizeof *times);
    check(times != NULL, "memory");
    for (int i = 0; i < count; i++) {
        double start = now();
        say(fd, to, with, octets);
        receive(fd, with, octets);
        times[i] = (now() - start) / 2;
    }
    print_median(times, count);
}

static void lists(int fd, const struct sockaddr_in *to, int seconds, size_t octets)
{
    static struct iovec parts[LIST];
    static struct mmsghdr messages[LIST];
    for (int i = 0; i < LIST; i++) {
        parts[i] = (struct iovec){packet, octets + AROUND};
        messages[i].msg_hdr = (struct msghdr){.msg_name = (void *)to, .msg_namelen = sizeof *to,
                                              .msg_iov = &parts[i], .msg_iovlen = 1};
    }
    double start = now(), end = start + seconds * 1e6;
    unsigned long sent = 0;
    while (now() < end) {
        int n = sendmmsg(fd, messages, LIST, 0);
        check(n > 0 || errno == EAGAIN, "sendmmsg");
        sent += n > 0 ? n : 0;
    }
    printf("%.0f\n", sent / ((now() - start) / 1e6));
}

static void drain(int fd)
{
    static char room[LIST][LONGEST];
    static struct iovec parts[LIST];
    static struct mmsghdr messages[LIST];
    for (int i = 0; i < LIST; i++) {
        parts[i] = (struct iovec){room[i], LONGEST};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    }
    for (;;)
        check(recvmmsg(fd, messages, LIST, 0, NULL) > 0 || errno == EAGAIN, "recvmmsg");
}

int main(int argc, char **argv)
{
    int is_list = argc == 4 && !strcmp(argv[1], "list"), with = argc == 4 && !strcmp(argv[1], "crc");
    if (argc != 4 || !(is_list || with || !strcmp(argv[1], "spin")) || atoi(argv[2]) <= 0
        || atoi(argv[3]) < 0 || atoi(argv[3]) > LONGEST - AROUND) {
        fprintf(stderr, "usage: udp-yardstick spin|crc|list COUNT OCTETS\n");
        return 2;
    }
    int count = atoi(argv[2]);
    size_t octets = atoi(argv[3]);
    struct sockaddr_in here, there;
    int fd = bound(&here), peer = bound(&there);
    pid_t child = fork();
    check(child >= 0, "fork");
    stay_on(child == 0);
    if (child == 0) {
        if (is_list)
            drain(peer);
        for (;;) {
            receive(peer, with, octets);
            say(peer, &here, with, octets);
        }
    }
    if (is_list)
        lists(fd, &there, count, octets);
    else
        ping(fd, &there, with, count, octets);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}
