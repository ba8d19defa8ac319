/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes memory inside the Linux test guest, faster than /dev/urandom can
 * under TCG.  Static and without a C library: the guest has none.
 *
 *   ramtool fill FILE MIB [SECRET]
 *
 * fills FILE with MIB MiB of pseudorandom data, seeded by the kernel's random
 * number generator.  SECRET is hexadecimal; its bytes are put, decoded, at the
 * start of each MiB.
 */

#include <stddef.h>
#include <stdint.h>

#define SYS_OPEN        2
#define SYS_MMAP        9
#define SYS_EXIT        60
#define SYS_FTRUNCATE   77
#define SYS_GETRANDOM   318

#define O_RDWR_CREAT    0x42
#define PROT_RDWR       3
#define MAP_SHARED      1

#define MIB             (1UL << 20)
#define MAX_SECRET      64

/* the kernel enters with the stack aligned to 16 bytes, a function wants 8 off */
asm(".globl _start\n"
    "_start:\n"
    "    movq %rsp, %rdi\n"
    "    call ramtool_main\n");

void ramtool_main(uint64_t *stack) __attribute__((noreturn));

static long syscall6(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    long ret;

    asm volatile("syscall"
                 : "=a"(ret)
                 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return ret;
}

static void quit(int status) __attribute__((noreturn));
static void quit(int status)
{
    for (;;) {
        syscall6(SYS_EXIT, status, 0, 0, 0, 0, 0);
    }
}

static long check(long ret, int status)
{
    if (ret < 0 && ret > -4096) {
        quit(status);
    }
    return ret;
}

static unsigned long parse_number(const char *s)
{
    unsigned long n = 0;

    while (*s >= '0' && *s <= '9') {
        n = n * 10 + (*s++ - '0');
    }
    return n;
}

static unsigned char digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static size_t decode(unsigned char *to, const char *hex)
{
    size_t len = 0;

    while (hex[0] && hex[1] && len < MAX_SECRET) {
        to[len++] = digit(hex[0]) << 4 | digit(hex[1]);
        hex += 2;
    }
    return len;
}

/* xorshift64*: three shifts and a product, no page of it compresses */
static void fill(uint64_t *p, size_t count, uint64_t seed)
{
    uint64_t x = seed | 1;

    while (count--) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        *p++ = x * 0x2545f4914f6cdd1d;
    }
}

void ramtool_main(uint64_t *stack)
{
    uint64_t argc = stack[0];
    char **argv = (char **)&stack[1];
    unsigned char secret[MAX_SECRET];
    unsigned char *map;
    size_t secret_len = 0;
    size_t size;
    uint64_t seed;
    long fd;

    if (argc < 4) {
        quit(2);
    }
    size = parse_number(argv[3]) * MIB;
    if (argc > 4) {
        secret_len = decode(secret, argv[4]);
    }

    check(syscall6(SYS_GETRANDOM, (long)&seed, sizeof(seed), 0, 0, 0, 0), 3);
    fd = check(syscall6(SYS_OPEN, (long)argv[2], O_RDWR_CREAT, 0600, 0, 0, 0),
               4);
    check(syscall6(SYS_FTRUNCATE, fd, size, 0, 0, 0, 0), 5);
    map = (unsigned char *)check(syscall6(SYS_MMAP, 0, size, PROT_RDWR,
                                          MAP_SHARED, fd, 0), 6);

    fill((uint64_t *)map, size / sizeof(uint64_t), seed);
    for (size_t at = 0; at < size; at += MIB) {
        for (size_t i = 0; i < secret_len; i++) {
            map[at + i] = secret[i];
        }
    }
    quit(0);
}
