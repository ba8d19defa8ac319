/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Answers requests of the host, as a guest's agent does.
 *
 *   agent serial DEVICE FILE
 *   agent vsock PORT FILE
 *
 * A request is a line, "ask NUMBER SIZE BODY".  The answer is a line, "NUMBER
 * LENGTH HASH ...", of the body's length and hash, and of SIZE dots.  A byte
 * 0xff, which no line has, drops the line that has begun.  The answer to "sync
 * NUMBER" is a byte 0xff and that line.  FILE has the number of bytes of the
 * line that has begun, and of requests that were answered.
 */

#define _GNU_SOURCE

#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#define MOST        (1 << 20)
#define DROP        0xff

static char line[MOST + 1], answer[MOST + 100];
static size_t used, answered;
static int report_fd;

static int fail(const char *what)
{
    perror(what);
    exit(2);
}

static void report(void)
{
    char text[50];
    int len = snprintf(text, sizeof(text), "%10zu %10zu\n", used, answered);

    if (pwrite(report_fd, text, len, 0) != len) {
        fail("report");
    }
}

static bool send_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = write(fd, data, size);

        if (n < 0) {
            return false;
        }
        data += n;
        size -= n;
    }
    return true;
}

static uint32_t hash(const char *data, size_t size)
{
    uint32_t sum = 0x811c9dc5;

    while (size--) {
        sum = (sum ^ (unsigned char)*data++) * 0x01000193;
    }
    return sum;
}

static size_t answer_line(void)
{
    unsigned long number, size;
    int body = 0;
    size_t len;

    line[used] = 0;
    if (sscanf(line, "sync %lu", &number) == 1) {
        return sprintf(answer, "%csync %lu\n", DROP, number);
    }
    if (sscanf(line, "ask %lu %lu %n", &number, &size, &body) != 2 || !body ||
        size > MOST) {
        return sprintf(answer, "what?\n");
    }
    len = sprintf(answer, "%lu %zu %08x ", number, used - body,
                  hash(line + body, used - body));
    memset(answer + len, '.', size);
    answer[len + size] = '\n';
    return len + size + 1;
}

static bool take(int fd, const char *data, ssize_t size)
{
    for (ssize_t i = 0; i < size; i++) {
        if ((unsigned char)data[i] == DROP) {
            used = 0;
        } else if (data[i] == '\n') {
            size_t len = answer_line();

            used = 0;
            answered++;
            if (!send_all(fd, answer, len)) {
                return false;
            }
        } else if (used < MOST) {
            line[used++] = data[i];
        }
    }
    report();
    return true;
}

/* A port without a host at its other end returns 0 */
static void serve(int fd, bool ends)
{
    static char input[4096];
    ssize_t n;

    while ((n = read(fd, input, sizeof(input))) > 0 || (n == 0 && !ends)) {
        if (!n) {
            usleep(10000);
        } else if (!take(fd, input, n)) {
            return;
        }
    }
}

static void serve_port(const char *device)
{
    int fd = open(device, O_RDWR);
    struct termios raw;

    if (fd < 0) {
        fail(device);
    }
    if (tcgetattr(fd, &raw) == 0) {
        cfmakeraw(&raw);
        tcsetattr(fd, TCSANOW, &raw);
    }
    serve(fd, false);
}

static void serve_vsock(const char *port)
{
    struct sockaddr_vm address = {
        .svm_family = AF_VSOCK,
        .svm_port = atoi(port),
        .svm_cid = VMADDR_CID_ANY,
    };
    int fd = socket(AF_VSOCK, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(fd, 1) < 0) {
        fail("vsock");
    }
    for (;;) {
        int peer = accept(fd, NULL, NULL);

        if (peer >= 0) {
            serve(peer, true);
            close(peer);
            used = 0;
            report();
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        return 2;
    }
    report_fd = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (report_fd < 0) {
        fail(argv[3]);
    }
    report();
    if (!strcmp(argv[1], "serial")) {
        serve_port(argv[2]);
    } else if (!strcmp(argv[1], "vsock")) {
        serve_vsock(argv[2]);
    }
    return 1;
}
