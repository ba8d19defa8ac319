/*
 * Templates: find, make and count files
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "system/ram-reset/block-list.h"
#include "system/ram-reset/block/copy.h"
#include "system/ram-reset/block/find-data.h"
#include "system/ram-reset/block/overlay-map.h"
#include "system/ram-reset/options.h"
#include "system/ram-reset/prim/ranges.h"
#include "system/ram-reset/template/dir.h"
#include "system/ram-reset/template/refusal.h"
#include "system/ram-reset/template/store.h"
#include "system/ram-reset/template/warning.h"
#include "system/ram-reset/trace.h"

/* Protected by the BQL */
static struct {
    TemplateFile *file;
    char *identity;             /* of @file */
    char *path;                 /* of @file, or of the last unusable file */
    Error *problem;             /* why there is no @file */
    int64_t started;            /* seconds since 1970 */
    GHashTable *saved;          /* names of files made by saving */
    RamResetWarning unusable, not_made, removed;
} template;

static uint64_t template_limit_of(const RamReset *rr)
{
    return rr->template_dir ? rr->template_limit : 0;
}

static uint64_t template_size_limit(void)
{
    return ram_reset_smallest_limit(template_limit_of);
}

static void template_options_changed(Notifier *n, void *data)
{
    if (data && RAM_RESET(data)->template_dir && !template.saved) {
        template.started = g_get_real_time() / G_USEC_PER_SEC;
        template.saved = g_hash_table_new_full(g_str_hash, g_str_equal, g_free,
                                               NULL);
    }
}

static void template_follow_options(void)
{
    static Notifier notifier = { .notify = template_options_changed };

    ram_reset_add_options_notifier(&notifier);
}

/* Runs before any object exists */
type_init(template_follow_options)

const TemplateFile *ram_reset_template(void)
{
    return template.file;
}

bool ram_reset_has_template(void)
{
    return template.file;
}

char *ram_reset_template_path(void)
{
    return g_strdup(template.path);
}

void ram_reset_template_close(void)
{
    g_clear_pointer(&template.file, template_file_free);
    g_clear_pointer(&template.identity, g_free);
}

void ram_reset_template_set(TemplateFile *f, const char *path)
{
    ram_reset_template_close();
    template.file = f;
    g_free(template.path);
    template.path = g_strdup(path);
}

/* Takes ownership of @problem, which may be NULL */
static void set_problem(Error *problem)
{
    error_free(template.problem);
    template.problem = problem;
}

static bool may_map(void)
{
    Error *problem = NULL;

    if (!template_host_is_able(&problem)) {
        set_problem(problem);
        return false;
    }
    return true;
}

static void template_warn(RamResetWarning *kind, const char *what)
{
    const char *problem = error_get_pretty(template.problem);

    if (ram_reset_warning_due(kind, problem, get_clock())) {
        warn_report("template '%s' %s: %s", template.path, what, problem);
    }
}

static void set_path(RamReset *rr, const char *identity)
{
    g_autofree char *name = template_file_name(identity);

    g_free(template.path);
    template.path = g_build_filename(rr->template_dir, name, NULL);
}

bool ram_reset_template_find(const char *identity, int64_t *note)
{
    RamReset *rr = ram_reset_template_object();
    Error *problem = NULL;

    assert(bql_locked());
    ram_reset_template_close();
    if (!rr || !may_map()) {
        return false;
    }
    set_path(rr, identity);
    if (!template_ram_is_able(&problem)) {
        set_problem(problem);
        return false;
    }
    if (template_file_open(rr->template_fd, identity, &template.file,
                           &problem) &&
        template.file && template_fits(template.file, &problem)) {
        template.identity = g_strdup(identity);
        set_problem(NULL);
        ram_reset_warning_over(&template.unusable);
        ram_reset_warning_over(&template.removed);
        *note = template.file->note;
        return true;
    }
    ram_reset_template_close();
    if (problem) {
        set_problem(problem);
        template_warn(&template.unusable,
                      "cannot be used, and will be made again");
    } else {
        error_setg(&problem, "this snapshot had none");
        set_problem(problem);
    }
    return false;
}

/* The pages of @blk that are not zero */
static GArray *find_runs(const RamResetBlock *blk)
{
    uint64_t page = qemu_target_page_size();
    g_autoptr(GArray) content = ram_reset_find_content(blk);
    GArray *runs = prim_ranges_new();
    uint64_t done = 0;

    for (unsigned i = 0; i < content->len; i++) {
        PrimRange range = g_array_index(content, PrimRange, i);
        uint64_t end = range.start + range.len;

        range.start = MAX(QEMU_ALIGN_DOWN(range.start, page), done);
        end = MIN(QEMU_ALIGN_UP(end, page), blk->map.len);
        ram_copy_find_runs(blk->map.host, range.start, end, page, runs);
        done = MAX(end, done);
    }
    return runs;
}

/*
 * A save only removes files that this QEMU has saved, since a guest may decide
 * how often it is done.  Snapshots that alternate, and do not fit together,
 * must not remove each other each time.
 */
static bool make_room(RamReset *rr, const TemplateFile *f, bool loaded,
                      Error **errp)
{
    return template_dir_make_room(rr->template_fd, template_size_limit(),
                                  template_file_content(f),
                                  loaded ? NULL : template.saved,
                                  template.started, errp);
}

static bool write_template(RamReset *rr, TemplateFile *f, bool loaded,
                           Error **errp)
{
    g_autoptr(RamResetBlockList) list = ram_reset_list_blocks();
    g_autofree uint8_t **hosts = g_new(uint8_t *, list->nr);

    if (!template_ram_is_able(errp)) {
        return false;
    }
    for (unsigned i = 0; i < list->nr; i++) {
        RamResetBlock *blk = &list->blocks[i];

        if (template_has_block(blk->rb)) {
            hosts[f->blocks->len] = blk->map.host;
            template_file_add_block(f, blk->rb->idstr, blk->map.len,
                                    find_runs(blk));
        }
    }
    return make_room(rr, f, loaded, errp) &&
           template_file_write(f, rr->template_fd, hosts, errp);
}

/* The file has been made; open it */
static void open_made(RamReset *rr, const char *identity, bool loaded,
                      Error **errp)
{
    if (template_file_open(rr->template_fd, identity, &template.file, errp) &&
        !template.file) {
        error_setg(errp, "it was removed");
    }
    if (template.file) {
        template.identity = g_strdup(identity);
    }
    if (!loaded) {
        g_hash_table_add(template.saved, template_file_name(identity));
    }
}

void ram_reset_template_make(const char *identity, int64_t note, bool loaded)
{
    RamReset *rr = ram_reset_template_object();
    int64_t before = get_clock();
    Error *problem = NULL;
    TemplateFile *f;

    assert(bql_locked());
    ram_reset_template_close();
    if (!rr || !may_map()) {
        return;
    }
    set_path(rr, identity);
    f = template_file_new(identity, note, qemu_target_page_size());
    if (write_template(rr, f, loaded, &problem)) {
        open_made(rr, identity, loaded, &problem);
    }
    trace_ram_reset_template_made(template.path, template_file_content(f),
                                  get_clock() - before);
    template_file_free(f);
    set_problem(problem);
    if (problem) {
        template_warn(&template.not_made, "has not been made");
    } else {
        ram_reset_warning_over(&template.not_made);
    }
}

void ram_reset_template_retire(const char *identity)
{
    RamReset *rr = ram_reset_template_object();
    bool current = !g_strcmp0(template.identity, identity);
    g_autofree char *name = template_file_name(identity);

    assert(bql_locked());
    if (!rr) {
        return;
    }
    g_hash_table_remove(template.saved, name);
    if (template_dir_retire(rr->template_fd, identity,
                             current ? template.file->fd
                                     : overlay_map_fd()) && current) {
        Error *problem = NULL;

        ram_reset_template_close();
        error_setg(&problem, "its snapshot was deleted");
        set_problem(problem);
    }
}

void ram_reset_template_remove(const char *why)
{
    RamReset *rr = ram_reset_template_object();
    Error *problem = NULL;

    if (rr && template.identity) {
        template_dir_remove(rr->template_fd, template.identity);
        error_setg(&problem, "%s", why);
        set_problem(problem);
        template_warn(&template.removed, "has been removed");
    }
    ram_reset_template_close();
}

RamResetTemplateInfo *ram_reset_query_template(void)
{
    RamReset *rr = ram_reset_template_object();
    RamResetTemplateInfo *info;

    if (!rr) {
        return NULL;
    }
    info = g_new0(RamResetTemplateInfo, 1);
    info->dir = g_strdup(rr->template_dir);
    info->limit = template_size_limit();
    info->size = template_dir_size(rr->template_fd);
    if (template.problem) {
        info->problem = g_strdup(error_get_pretty(template.problem));
    }
    if (template.file && template.identity) {
        info->file = g_strdup(template.path);
        info->has_content = true;
        info->content = template_file_content(template.file);
    }
    return info;
}
