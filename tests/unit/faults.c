/*
 * Calls that fail when a test wants them to: the sweep
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <dirent.h>
#include "faults.h"

/* More calls of a kind than any operation has */
#define TOO_MANY 10000

/* The kinds of calls that any sweep has seen */
static bool seen_kinds[FAULT_KINDS];

/* The process's resources in the kernel, except for heap and stack */
typedef struct Held {
    unsigned files;
    size_t mapped;
} Held;

static Held held(void)
{
    Held now = { 0 };
    DIR *d = opendir("/proc/self/fd");
    FILE *maps;
    char line[512];
    unsigned long start, end;

    while (readdir(d)) {
        now.files++;
    }
    closedir(d);
    maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), maps)) {
        if (!strstr(line, "[heap]") && !strstr(line, "[stack]")) {
            g_assert_cmpint(sscanf(line, "%lx-%lx", &start, &end), ==, 2);
            now.mapped += end - start;
        }
    }
    fclose(maps);
    return now;
}

/* The fault that is armed, for the message of a failure */
static char where[200];

void faults_wrong(const char *format, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", where);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}

static void assert_held(Held before, const char *when)
{
    Held now = held();

    if (now.files != before.files) {
        faults_wrong("%s: %d descriptors leaked", when,
                     now.files - before.files);
    }
    if (now.mapped != before.mapped) {
        faults_wrong("%s: %zd bytes of mappings leaked", when,
                (ssize_t)(now.mapped - before.mapped));
    }
}

/* Whether the call has failed, or has only reported success */
static bool try(const FaultTest *test, const void *param, FaultKind kind,
                unsigned nth, int err, FaultMode mode, bool *ok)
{
    void *state = test->setup(param);
    Held before = held();
    unsigned fired;

    snprintf(where, sizeof(where), "%s, call %u: %s, %s", fault_name(kind), nth,
             err == FAULT_SHORT ? "short" : strerror(err),
             mode == FAULT_LIE ? "but it says that it has done it" :
             mode == FAULT_ONCE ? "once" : "from then on");
    faults_arm(kind, nth, err, mode);
    *ok = test->run(state);
    fired = faults_disarm();
    test->check(state, *ok);
    assert_held(before, "after it has failed");
    if (!fired && !*ok) {
        faults_wrong("has failed without a fault");
    }
    if (fired && mode != FAULT_LIE) {
        if (!test->run(state)) {
            faults_wrong("fails when it is done again");
        }
        test->check(state, true);
        assert_held(before, "after it has been done again");
    }
    test->teardown(state);
    return fired;
}

/* The counts of a kind */
typedef struct Row {
    unsigned calls, injected, done, refused;
} Row;

/*
 * An emulated machine would take many minutes.  It tries the first calls and
 * some later ones, with the first and the last of their errors.
 */
static bool fewer(void)
{
    return g_getenv("RAM_RESET_FAULTS_FEWER");
}

/* Returns the number of calls */
static unsigned sweep_calls(const FaultTest *test, const void *param,
                            FaultKind kind, int err, FaultMode mode, Row *row)
{
    unsigned nth = 1, calls = 0;
    bool ok;

    while (try(test, param, kind, nth, err, mode, &ok)) {
        row->injected++;
        row->done += ok;
        row->refused += !ok;
        calls = nth;
        nth += fewer() && nth >= 20 ? 13 : 1;
        g_assert_cmpuint(nth, <, TOO_MANY);
    }
    return calls;
}

static void sweep_kind(const char *name, const FaultTest *test,
                       const void *param, FaultKind kind)
{
    const int *errors = fault_errors(kind);
    Row row = { 0 };

    for (unsigned i = 0; errors[i]; i++) {
        unsigned calls;

        if (fewer() && i && errors[i + 1]) {
            continue;
        }
        calls = sweep_calls(test, param, kind, errors[i], FAULT_ONCE, &row);
        if (!calls) {
            return;
        }
        row.calls = MAX(row.calls, calls);
        /*
         * A signal does not come for ever, and not all reads of a file are
         * short
         */
        if (errors[i] != EINTR && errors[i] != FAULT_SHORT) {
            sweep_calls(test, param, kind, errors[i], FAULT_FROM_THEN_ON, &row);
        }
    }
    seen_kinds[kind] = true;
    g_test_message("%-28s %-20s %5u calls %6u failed %6u done %6u refused",
                   name, fault_name(kind), row.calls, row.injected, row.done,
                   row.refused);
}

void faults_sweep(const char *name, const FaultTest *test, const void *param)
{
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
        sweep_kind(name, test, param, kind);
    }
}

#define PARENT "RAM_RESET_FAULTS_DIR"

char *faults_make_dir(const char *template)
{
    char *dir = g_test_subprocess()
                ? g_build_filename(g_getenv(PARENT), "planted-XXXXXX", NULL)
                : g_strdup(template);

    if (!g_mkdtemp(dir)) {
        g_clear_pointer(&dir, g_free);
    } else if (!g_test_subprocess()) {
        g_setenv(PARENT, dir, true);
    }
    return dir;
}

void faults_remove_dir(char *dir)
{
    const char *argv[] = { "rm", "-rf", dir, NULL };

    g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL,
                 NULL, NULL, NULL, NULL);
    g_free(dir);
}

static void test_planted(gconstpointer data)
{
    const FaultPlanted *p = data;
    bool ok;

    if (g_test_subprocess()) {
        for (unsigned nth = 1; nth < 10; nth++) {
            try(p->test, p->param, p->kind, nth, 0, FAULT_LIE, &ok);
        }
        return;
    }
    g_test_trap_subprocess(NULL, 0, G_TEST_SUBPROCESS_DEFAULT);
    g_test_trap_assert_failed();
    g_test_trap_assert_stderr(p->says);
}

void faults_add_planted(const FaultPlanted *planted)
{
    g_autofree char *path = g_strdup_printf("/faults/planted/%s",
                                            planted->name);

    g_test_add_data_func(path, planted, test_planted);
}

/* Otherwise a call by another name would be missed without a message */
void faults_assert_seen(const FaultKind *seen)
{
    for (; *seen != FAULT_KINDS; seen++) {
        if (!seen_kinds[*seen]) {
            g_error("no call of %s was seen: is the linker told of it?",
                    fault_name(*seen));
        }
    }
}

static void test_seen(gconstpointer data)
{
    faults_assert_seen(data);
}

void faults_add_seen(const FaultKind *seen)
{
    /* This suite runs after the suite of the sweeps */
    g_test_add_data_func("/faults-seen/all", seen, test_seen);
}
