/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Draws what must not be the same twice.  For each line of its input it prints
 *
 *   drawn TIME RANDOM UUID UUID UUID
 *
 * twice, of what it draws at once, and of what it draws after a pause of so
 * many us as its argument says:
 * 64 bytes of the kernel's random number generator and three of its UUIDs,
 * and the time when it had them, by the ACPI timer: a load takes that back
 * with the rest.  It says "waiting" when it can be asked.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/random.h>
#include <unistd.h>

#define ACPI_TIMER      0x608
#define TIMER_MASK      0xffffff
#define NR_UUIDS        3
#define UUID_LENGTH     36

typedef struct Draw {
    uint8_t bytes[64];
    char uuids[NR_UUIDS][UUID_LENGTH + 1];
} Draw;

static void draw(Draw *d)
{
    if (getrandom(d->bytes, sizeof(d->bytes), 0) != sizeof(d->bytes)) {
        exit(1);
    }
    for (int i = 0; i < NR_UUIDS; i++) {
        int fd = open("/proc/sys/kernel/random/uuid", O_RDONLY);

        if (fd < 0 || read(fd, d->uuids[i], UUID_LENGTH) != UUID_LENGTH) {
            exit(1);
        }
        d->uuids[i][UUID_LENGTH] = 0;
        close(fd);
    }
}

static void print(const Draw *d, uint32_t time)
{
    printf("drawn %x ", time);
    for (size_t i = 0; i < sizeof(d->bytes); i++) {
        printf("%02x", d->bytes[i]);
    }
    for (int i = 0; i < NR_UUIDS; i++) {
        printf(" %s", d->uuids[i]);
    }
    printf("\n");
    fflush(stdout);
}

static uint32_t now(void)
{
    return inl(ACPI_TIMER) & TIMER_MASK;
}

int main(int argc, char **argv)
{
    unsigned pause = argc == 2 ? atoi(argv[1]) : 0;
    uint32_t times[2];
    Draw d[2];
    char line[16];

    if (!pause || iopl(3)) {
        return 1;
    }
    /* waits until the generator has been seeded, and has all of this mapped */
    draw(&d[0]);
    printf("waiting\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        draw(&d[0]);
        times[0] = now();
        usleep(pause);
        draw(&d[1]);
        times[1] = now();
        print(&d[0], times[0]);
        print(&d[1], times[1]);
    }
    return 0;
}
