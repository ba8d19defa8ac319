/*
 * How long DPDK's environment takes to start, and then to give memory
 *
 * Usage: dpdk-start LIBRARY MIB [EAL OPTION...]
 *
 * The library is loaded at run time: Debian's headers come with more than two
 * hundred packages, and what is used here has had one form in all releases.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ANY_SOCKET (-1)

typedef int EalInit(int argc, char **argv);
typedef int EalCleanup(void);
typedef const void *ReserveZone(const char *name, size_t len, int socket,
                                unsigned flags);

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e3 + ts.tv_nsec / 1e6;
}

static void *symbol(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;

    if (!found) {
        fprintf(stderr, "dpdk-start: %s; give the name of librte_eal.so\n",
                dlerror());
        exit(2);
    }
    return found;
}

int main(int argc, char **argv)
{
    double start, ready, reserved;
    ReserveZone *reserve_zone;
    EalCleanup *cleanup;
    EalInit *init;
    void *eal;
    size_t mib;

    if (argc < 3 || sscanf(argv[2], "%zu", &mib) != 1) {
        fprintf(stderr, "Usage: dpdk-start LIBRARY MIB [EAL OPTION...]\n");
        return 2;
    }
    /* global, since DPDK looks itself up to see that it is shared */
    eal = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    init = (EalInit *)symbol(eal, "rte_eal_init");
    cleanup = (EalCleanup *)symbol(eal, "rte_eal_cleanup");
    reserve_zone = (ReserveZone *)symbol(eal, "rte_memzone_reserve");
    start = now_ms();
    if (init(argc - 2, argv + 2) < 0) {
        fprintf(stderr, "dpdk-start: DPDK does not start, see above\n");
        return 1;
    }
    ready = now_ms();
    if (!reserve_zone("bench", mib << 20, ANY_SOCKET, 0)) {
        fprintf(stderr, "dpdk-start: DPDK has no memory for the zone\n");
        return 1;
    }
    reserved = now_ms();
    printf("{\"init_ms\": %.5f, \"zone_ms\": %.5f}\n", ready - start,
           reserved - ready);
    fflush(stdout);
    cleanup();
    return 0;
}
