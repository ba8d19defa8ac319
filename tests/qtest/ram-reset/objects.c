/*
 * RAM reset tests: ram-reset objects, and the strategies to expect of them
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/units.h"
#include "framework.h"

static char *state_file, *split_file;

static void remove_split_file(void)
{
    unlink(split_file);
    g_clear_pointer(&split_file, g_free);
}

static void remove_state_file(void)
{
    unlink(state_file);
}

char *costs_file(double clear, double discard, double remap, double fault)
{
    static const char *const kinds[] = { "anonymous", "shared", "hugetlb" };
    g_autoptr(GString) text = g_string_new(NULL);
    char *name = temp_name("costs");

    for (unsigned i = 0; i < G_N_ELEMENTS(kinds); i++) {
        g_string_append_printf(text, "[%s]\ngranule=4096\ntest=%f\nclear=%f\n"
                               "discard-call=1000\ndiscard=%f\n"
                               "remap-call=1000\n"
                               "remap=%f\nfault=%f\nguest-fault=0\n"
                               "guest-map=0\n", kinds[i], clear, clear, discard,
                               remap, fault);
    }
    g_assert_true(g_file_set_contents(name, text->str, -1, NULL));
    return name;
}

char *vm_object(const char *strategy, const char *props)
{
    if (!g_strcmp0(strategy, "auto-split")) {
        if (!split_file) {
            /*
             * The better choice depends on the number of pages that are used
             * again
             */
            split_file = costs_file(100, 100, 1e6, 50);
            atexit(remove_split_file);
        }
        return g_strdup_printf("-object ram-reset-auto,id=rr0,costs=%s%s",
                               split_file, props);
    }
    if (!g_strcmp0(strategy, "hugefile")) {
        if (!state_file) {
            state_file = temp_name("state");
            atexit(remove_state_file);
        }
        return g_strdup_printf("-object ram-reset-hugefile,id=rr0,memdev=ram,"
                               "state=%s%s", state_file, props);
    }
    return strategy ? g_strdup_printf("-object ram-reset-%s,id=rr0%s",
                                      strategy, props) : g_strdup("");
}

char *vm_dimm(const char *object, const char *type, ...)
{
    g_autofree char *backend = NULL;
    va_list ap;

    va_start(ap, type);
    backend = g_strdup_vprintf(type, ap);
    va_end(ap);
    return g_strdup_printf("%s -m 16m,maxmem=1g,slots=1 -object %s,id=more "
                           "-device pc-dimm,memdev=more,id=dimm0", object,
                           backend);
}

const char *expected_reason(const char *strategy, MemKind kind)
{
    if (!strcmp(strategy, "madvise") && kind == MEM_FILE) {
        return "private mapping of a file";
    }
    if (!strcmp(strategy, "remap")) {
        switch (kind) {
        case MEM_FILE:
        case MEM_HUGETLB_FILE:
            return "its file is not a memfd";
        case MEM_HUGETLB_PRIVATE:
            return "fresh private hugepages";
        default:
            break;
        }
    }
    return NULL;
}

const char *expected_strategy(const char *strategy, MemKind kind)
{
    if (g_str_has_prefix(strategy, "auto")) {
        return NULL;
    }
    return expected_reason(strategy, kind) ? "memset" : strategy;
}
