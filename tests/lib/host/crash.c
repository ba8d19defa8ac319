/*
 * Preloaded into QEMU: when it crashes, its log has which thread it was and
 * where, so that a crash that does not come again can still be understood.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static void report(int sig, siginfo_t *info, void *context)
{
    void *frames[48];
    char thread[16] = "", line[96];
    int len;

    (void)context;
    prctl(PR_GET_NAME, thread);
    len = snprintf(line, sizeof(line), "crash: signal %d at %p in thread %s\n",
                   sig, info->si_addr, thread);
    if (write(STDERR_FILENO, line, len) == len) {
        backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
    }
    raise(sig);                 /* kills when this returns */
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction sa = {
        .sa_sigaction = report, .sa_flags = SA_SIGINFO | SA_RESETHAND,
    };
    void *frame;

    backtrace(&frame, 1);       /* what it needs is loaded now, not then */
    sigaction(SIGSEGV, &sa, NULL);
}
