/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Keeps a device's queues full, and tells what has come last.
 *
 *   chatter ethernet INTERFACE
 *   chatter udp ADDRESS PORT
 *   chatter serial DEVICE
 *
 * sends messages, and takes them, as fast as the device does.  A message is a
 * number in decimal, between a "<" and a ">", and noise; what is sent is the
 * number that has come last.
 *
 *   chatter read DEVICE FILE
 *
 * reads for ever, and has the number of reads in FILE.
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#define ETHERTYPE   0x88b5      /* for experiments */
#define HEADER      14
#define MOST        1500
#define MOST_AT_ONCE 64

static unsigned long last;
static unsigned noise;

static int fail(const char *what)
{
    perror(what);
    exit(2);
}

static void take(const char *data, ssize_t size)
{
    for (const char *p = data; size > 0 && p; ) {
        unsigned long number;
        char closing;

        p = memchr(p, '<', data + size - p);
        if (p && sscanf(p, "<%lu%c", &number, &closing) == 2 &&
            closing == '>') {
            last = number;
        }
        p = p ? p + 1 : NULL;
    }
}

static size_t message(char *to)
{
    size_t len = sprintf(to, "<%lu>", last);

    noise = noise * 1103515245 + 12345;
    memset(to + len, '.', 60);
    return len + 60 + (noise >> 16) % 1000;
}

/* @header: bytes that are neither sent nor taken as a message */
static void chatter(int fd, char *packet, size_t header)
{
    static char input[MOST + 1];

    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN | POLLOUT };

        if (poll(&p, 1, -1) < 0) {
            fail("poll");
        }
        /* all that there is, lest old numbers wait before new ones */
        for (int i = 0; i < MOST_AT_ONCE && p.revents & POLLIN; i++) {
            ssize_t n = read(fd, input, MOST);

            if (n < 0) {
                break;
            }
            if (n > (ssize_t)header) {
                input[n] = 0;
                take(input + header, n - header);
            }
        }
        if (p.revents & POLLOUT) {
            /* what is not taken now need not come */
            if (write(fd, packet, header + message(packet + header)) < 0) {
                continue;
            }
        }
    }
}

static int open_interface(const char *name, char *packet)
{
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETHERTYPE),
        .sll_ifindex = if_nametoindex(name),
    };
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETHERTYPE));

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        fail(name);
    }
    memset(packet, 0xff, 6);    /* to all */
    memcpy(packet + 6, "\x02\0\0\0\0\1", 6);
    packet[12] = ETHERTYPE >> 8;
    packet[13] = ETHERTYPE & 0xff;
    return fd;
}

static int open_udp(const char *address, const char *port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_port = htons(atoi(port)),
    };
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

    if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        fail(address);
    }
    return fd;
}

static int open_serial(const char *device)
{
    int fd = open(device, O_RDWR | O_NONBLOCK);
    struct termios raw;

    if (fd < 0) {
        fail(device);
    }
    if (tcgetattr(fd, &raw) == 0) {
        cfmakeraw(&raw);
        tcsetattr(fd, TCSANOW, &raw);
    }
    return fd;
}

static void read_for_ever(const char *device, const char *report)
{
    int fd = open(device, O_RDONLY);
    int out = open(report, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char data[64];

    if (fd < 0 || out < 0) {
        fail(device);
    }
    for (unsigned long n = 0; ; n++) {
        int len = sprintf(data, "%12lu\n", n);

        if (pwrite(out, data, len, 0) != len ||
            read(fd, data, sizeof(data)) <= 0) {
            fail(device);
        }
    }
}

int main(int argc, char **argv)
{
    static char packet[HEADER + MOST];

    if (argc == 3 && !strcmp(argv[1], "ethernet")) {
        chatter(open_interface(argv[2], packet), packet, HEADER);
    } else if (argc == 4 && !strcmp(argv[1], "udp")) {
        chatter(open_udp(argv[2], argv[3]), packet, 0);
    } else if (argc == 3 && !strcmp(argv[1], "serial")) {
        chatter(open_serial(argv[2]), packet, 0);
    } else if (argc == 4 && !strcmp(argv[1], "read")) {
        read_for_ever(argv[2], argv[3]);
    }
    return 2;
}
