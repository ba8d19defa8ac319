/*
 * Pluggable RAM reset: making guest RAM zero when a snapshot is loaded
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SYSTEM_RAM_RESET_H
#define SYSTEM_RAM_RESET_H

#include "qom/object.h"
#include "qemu/notify.h"
#include "exec/cpu-common.h"
#include "system/hostmem.h"
#include "qapi/qapi-types-ram-reset.h"

/*
 * A ram-reset object names a strategy, its QOM type, for making RAM blocks
 * zero.  This layer knows RAM blocks and strategies.  It does not know what
 * a snapshot is: its caller, migration/ram-reset.c, says when RAM has to
 * become zero and asks afterwards which pages still are.
 *
 * All functions are called with the BQL held, and between ram_reset_begin()
 * and ram_reset_finish() from one thread only.  A reset goes like this:
 *
 *     ram_reset_begin()       vCPUs stopped, I/O drained
 *     ram_reset_known_zero(), ram_reset_page_loaded(), ... in any order
 *     ram_reset_complete_zeroing()      all of RAM has been loaded
 *     ram_reset_finish()      also when the load has failed
 */

#define TYPE_RAM_RESET "ram-reset"
OBJECT_DECLARE_TYPE(RamReset, RamResetClass, RAM_RESET)

#define TYPE_RAM_RESET_AUTO    "ram-reset-auto"
#define TYPE_RAM_RESET_MEMSET  "ram-reset-memset"
#define TYPE_RAM_RESET_MADVISE "ram-reset-madvise"
#define TYPE_RAM_RESET_REMAP   "ram-reset-remap"
#define TYPE_RAM_RESET_HUGEFILE "ram-reset-hugefile"

typedef struct RamResetBlock RamResetBlock;

/**
 * RamResetClass: one strategy
 *
 * @supports: Whether this strategy can make @blk zero.  Called by
 *     ram_reset_begin() at every load, since the answer may change (memory
 *     pinned by a new device, a file written to).  Must change nothing.
 *     False with @errp set to the reason, a sentence for query-ram-reset;
 *     the block is then cleared in place by ram-reset-memset.
 *
 * @late: The strategy keeps pages, so that what the snapshot overwrites need
 *     not be zero before.  @zero is then called when RAM has been loaded, and
 *     leaves alone all pages that are not in @blk->known any more.  Where the
 *     caller does not tell of all pages, or nothing can be known, it is called
 *     before all the same.
 *
 * @zero: Make [@start, @start + @len) of @blk zero and add what was done to
 *     @blk->info's counters.  @start and @len are multiples of the block's
 *     page size, except that the range may end at its used_length.
 *     Called only for blocks that @supports accepted, and then once a load,
 *     or for some parts of them.
 *     0, or -errno: the range is then cleared in place.
 *
 * @plan: For strategies that leave the work to others: fill in @blk->parts, and
 *     the strategy and reason in @blk->info.  Called after @supports, at every
 *     load.  May be NULL, and then @zero must not be.
 *
 * @loaded: A snapshot has been loaded, and @blk is what @plan and the load have
 *     made of it.  May be NULL.
 *
 * @check: Whether @rr's properties go together; called when the object is
 *     made, and when the machine is.  May be NULL.
 *
 * @machine_ready: The machine has been made, with all the RAM that it has to
 *     begin with.  May be NULL.
 *
 * @memdev_comes_later: The memory backend is to be made after the object.
 *
 * @query: Add to @info what there is to say of @rr alone.  May be NULL.
 */
struct RamResetClass {
    ObjectClass parent_class;

    bool late, memdev_comes_later;
    bool (*check)(RamReset *rr, Error **errp);
    void (*machine_ready)(RamReset *rr);
    void (*query)(RamReset *rr, RamResetObjectInfo *info);
    bool (*supports)(RamReset *rr, const RamResetBlock *blk, Error **errp);
    void (*plan)(RamReset *rr, RamResetBlock *blk);
    int (*zero)(RamReset *rr, RamResetBlock *blk, uint64_t start, uint64_t len);
    void (*loaded)(RamReset *rr, const RamResetBlock *blk);
};

/**
 * RamReset: an instance, made by -object or object-add
 *
 * @memdev: id of the one memory backend to reset; NULL for every block that
 *     no other object claims by name
 * @verify: compare RAM with the snapshot after each load
 * @rewind: keep what a snapshot has, to undo only what has changed since
 * @rewind_limit: bytes to keep for all blocks, at most; 0: as many as it takes
 * @template_dir: path of the directory where templates are kept; NULL for none
 * @template_fd: that directory; -1 if there is none
 * @template_limit: bytes that all templates there may have; 0: half of the file
 *     system
 * @threads: for clearing in place; 0: one per host CPU, at most 8
 * @completed: memdev has been checked and cannot be set any more
 * @warned: a failure of the strategy has been reported
 */
struct RamReset {
    Object parent;

    char *memdev;
    bool verify, rewind;
    uint64_t rewind_limit;
    char *template_dir;
    int template_fd;
    uint64_t template_limit;
    uint32_t threads;
    bool completed, warned;
    Notifier machine_done;
};

/**
 * ram_reset_expect_load: a snapshot will be loaded as soon as the machine is
 * made (-loadvm), so that RAM need not be cleared before
 */
void ram_reset_expect_load(void);

/**
 * ram_reset_backend_alloc: have @alloc map @backend's memory
 *
 * If a ram-reset-hugefile object names @backend, its file is taken before:
 * locked, and removed, made or reused as the object's unlink= says.  When it
 * has been mapped, bytes of an earlier run are cleared, unless a load is
 * expected.
 *
 * Returns: false with @errp set if @alloc has failed, or if the file cannot
 *     be used in that way; it has been let go of then
 */
bool ram_reset_backend_alloc(HostMemoryBackend *backend,
                             bool (*alloc)(HostMemoryBackend *backend,
                                           Error **errp),
                             Error **errp);

/**
 * ram_reset_enabled: whether any ram-reset object exists
 */
bool ram_reset_enabled(void);

/**
 * ram_reset_verify_wanted: whether any ram-reset object has verify=on
 */
bool ram_reset_verify_wanted(void);

/**
 * ram_reset_covers: whether a reset would make @rb zero
 *
 * False for blocks that no object serves and for those that must not be
 * touched.  Changes nothing.
 */
bool ram_reset_covers(RAMBlock *rb);

/**
 * ram_reset_begin: make all RAM blocks zero that an object claims, or note
 * that they are to be so
 *
 * @ignored: says of a block that the caller will not load it, so that it
 *     must not be touched.  May be NULL.
 * @all_notified: the caller will call ram_reset_page_loaded() for every page that
 *     it writes to, so that clearing can wait
 * @expected: bytes that the caller will write to all blocks, at most; 0 if it
 *     does not know
 *
 * vCPUs must be stopped, and stay so until ram_reset_finish(), and I/O
 * drained, until ram_reset_complete_zeroing() if that is called.  Cannot fail: where a
 * strategy does, its block is cleared in place instead, which is counted and
 * warned of once an object.
 * Other users of the dirty log see all of these blocks as dirty.
 *
 * Without a ram-reset object this does nothing.  Otherwise it allocates a
 * bit per target page, until ram_reset_finish().
 */
void ram_reset_begin(bool (*ignored)(RAMBlock *rb), bool all_notified,
                     uint64_t expected);

/* True from ram_reset_begin() to ram_reset_finish(), if any object exists */
extern bool ram_reset_running;

bool ram_reset_do_known_zero(const void *host, size_t size);

/* What the caller is about to do with a page */
typedef enum RamResetPage {
    RAM_RESET_PAGE_ZERO,        /* make it zero */
    RAM_RESET_PAGE_WRITE,       /* write all of it */
    RAM_RESET_PAGE_CHANGE,      /* write some of it, or what depends on it */
} RamResetPage;

/**
 * ram_reset_known_zero: whether [@host, @host + @size) is zero, or will be
 * when ram_reset_complete_zeroing() returns if the caller does not write there
 *
 * False unless it is certain; always false outside begin and finish.
 * Memory for which the answer is true has not been touched to find out.
 */
static inline bool ram_reset_known_zero(const void *host, size_t size)
{
    return unlikely(ram_reset_running) && ram_reset_do_known_zero(host, size);
}

/**
 * ram_reset_page_loaded: the caller is going to load a target page
 *
 * @rb: the block
 * @offset: of the page in it, target page aligned and inside used_length
 * @what: zero pages are counted; others are known zero no longer.  A page
 *     whose old content matters is made zero now, if that has been put off.
 *
 * Only between begin and finish.
 */
void ram_reset_page_loaded(RAMBlock *rb, ram_addr_t offset, RamResetPage what);

/**
 * ram_reset_known_run: how much of @rb from @offset on is known to be zero
 *
 * Returns: bytes, at most @max.  Both must be target page aligned.
 */
uint64_t ram_reset_known_run(RAMBlock *rb, ram_addr_t offset, uint64_t max);

/**
 * ram_reset_pages_skipped: count pages that were to be zero and known to be
 *
 * For those that ram_reset_page_loaded() is not called for.
 */
void ram_reset_pages_skipped(RAMBlock *rb, uint64_t pages);

/**
 * ram_reset_complete_zeroing: make zero what is known to be so, and is not yet
 *
 * To be called when RAM has been loaded and before anybody looks at it.
 */
void ram_reset_complete_zeroing(void);

/**
 * ram_reset_foreach_content: show all of a block's bytes
 *
 * @rb: the block.  Its files and hugepages are not populated by being read:
 *     shared memory is read through its file, if it has a regular one, and of
 *     private hugepages those that are not there are passed over.
 * @func: called with pieces of @rb in rising order, @start and @len in
 *     bytes and multiples of the target page size, until it returns false
 *
 * Works at any time.
 */
void ram_reset_foreach_content(RAMBlock *rb,
                               bool (*func)(RAMBlock *rb, uint64_t start,
                                            const uint8_t *data, uint64_t len,
                                            void *opaque),
                               void *opaque);

/**
 * ram_reset_finish: end the reset; nothing is known zero from now on
 *
 * Does what ram_reset_complete_zeroing() does, if that has not been called.  @loaded: the
 * snapshot has been loaded, nothing has failed.
 *
 * Returns: what was done, block by block, owned by the caller.  Empty if
 * there was no ram-reset object, or nothing has begun.
 */
RamResetBlockInfoList *ram_reset_finish(bool loaded);

/*
 * Rewinding, for objects with rewind=on.  Somebody who knows that RAM is what
 * a snapshot has calls ram_reset_take_baseline(); when it is to be so once more,
 * ram_reset_rewind() takes the place of ram_reset_begin() and all of the
 * loading, if there is no blocker about it, and ram_reset_finish() follows.
 */

/**
 * ram_reset_slots_change: tell that a load begins or has ended to remap memory
 *
 * @change: it begins.  Guest RAM is then not to be cleared in any dirty log but
 * by ram_reset_rewind(), and vCPUs are stopped, until it has ended.
 */
void ram_reset_slots_change(bool change);

/**
 * ram_reset_rewind_wanted: whether any object has rewind=on
 */
bool ram_reset_rewind_wanted(void);

/**
 * ram_reset_take_baseline: keep a copy of RAM, and track what is written from now on
 *
 * @ignored: as for ram_reset_begin()
 * @loaded: RAM has just been loaded, so that devices have mapped nothing of it,
 *     or will map it anew
 *
 * vCPUs stopped, I/O drained; between ram_reset_complete_zeroing() and
 * ram_reset_finish(), or outside of a reset.  What was kept before is lost.
 *
 * Returns: false if nothing is wanted, or can be kept, which is warned of once
 */
bool ram_reset_take_baseline(bool (*ignored)(RAMBlock *rb), bool loaded);

/**
 * ram_reset_forget_baseline: RAM must not be rewound any more
 *
 * @why: a sentence for the user, unless nothing was kept
 */
void ram_reset_forget_baseline(const char *why);

/**
 * ram_reset_no_baseline: the same, and @why is the reason in any case
 */
void ram_reset_no_baseline(const char *why);

/**
 * ram_reset_stop_tracking: somebody else will use the dirty log, and expects
 * that it starts it.  What was kept is forgotten.
 */
void ram_reset_stop_tracking(void);

/**
 * ram_reset_rewind_blocker: why ram_reset_rewind() must not be called
 *
 * Returns: NULL if it may be, otherwise a sentence, valid until the next call
 */
const char *ram_reset_rewind_blocker(void);

/**
 * ram_reset_rewind: make RAM what it was when it was kept
 *
 * As for ram_reset_begin(), but all is done at once.
 */
void ram_reset_rewind(void);

/* Set when somebody clears bits of the dirty log that are ours, any thread */
extern bool ram_reset_dirty_bits_taken;

/* Whether it is known what has been written to since ram_reset_take_baseline() */
extern bool ram_reset_tracking;

void ram_reset_do_will_change(RAMBlock *rb, uint64_t start, uint64_t len);

/* Set while mappings for writing are noted, see mappings.c */
extern bool ram_reset_noting;

void ram_reset_do_dma_map(RAMBlock *rb, uint64_t start, uint64_t len);
uint64_t ram_reset_do_dma_unmap(RAMBlock *rb, uint64_t start, uint64_t len,
                                uint64_t access_len);

/**
 * ram_reset_dma_map: a range of @rb is going to be written to through a pointer
 *
 * Bytes; any thread.  ram_reset_dma_unmap() follows with the same @start.
 */
static inline void ram_reset_dma_map(RAMBlock *rb, uint64_t start, uint64_t len)
{
    if (unlikely(qatomic_read(&ram_reset_noting))) {
        ram_reset_do_dma_map(rb, start, len);
    }
}

/**
 * ram_reset_dma_unmap: that is over
 *
 * @len: what was mapped; @access_len: what its user says it has written
 *
 * Returns: how much of it counts as written to
 */
static inline uint64_t ram_reset_dma_unmap(RAMBlock *rb, uint64_t start,
                                           uint64_t len, uint64_t access_len)
{
    return unlikely(qatomic_read(&ram_reset_noting))
           ? ram_reset_do_dma_unmap(rb, start, len, access_len) : access_len;
}

/*
 * Templates, for objects with template-dir=: files that have RAM as a snapshot
 * has it, for any QEMU to load it without reading the snapshot.  Callers say
 * which one by an identity: a text that is the same only if all of RAM is.
 * vCPUs stopped, I/O drained.  @ignored is as for ram_reset_begin().
 */

/**
 * ram_reset_templates_wanted: whether any object has a directory for them
 */
bool ram_reset_templates_wanted(void);

/**
 * ram_reset_template_find: open the template for @identity
 *
 * @note: set to what ram_reset_template_make() was given
 *
 * Returns: false if there is none that fits; query-ram-reset then says why, and
 *     if it is damaged or of other RAM that is warned of
 */
bool ram_reset_template_find(const char *identity,
                             bool (*ignored)(RAMBlock *rb), int64_t *note);

/**
 * ram_reset_template_load: make RAM what the template has that was found
 *
 * Takes the place of ram_reset_begin(), and of all of the loading.
 *
 * Returns: false if RAM has to be loaded all the same, which may go on as
 *     after ram_reset_begin()
 */
bool ram_reset_template_load(bool (*ignored)(RAMBlock *rb));

/**
 * ram_reset_template_make: write a template of what RAM has now
 *
 * @note: to be given to whoever finds it
 * @loaded: RAM was loaded, not saved; then templates that have not been used
 *     lately may go for it, otherwise those that this QEMU has saved
 *
 * Between ram_reset_complete_zeroing() and ram_reset_finish(), or outside of a reset.  A
 * failure is warned of, see warning.h.  What ram_reset_take_baseline() keeps afterwards
 * is this file.
 */
void ram_reset_template_make(const char *identity, int64_t note, bool loaded,
                             bool (*ignored)(RAMBlock *rb));

/**
 * ram_reset_has_template: whether RAM is what a template has, loaded or made
 */
bool ram_reset_has_template(void);

/**
 * ram_reset_template_path: of that file, or of one of no use; to be freed
 */
char *ram_reset_template_path(void);

/**
 * ram_reset_template_remove: the template is not what the snapshot has
 *
 * Its file is removed, which is warned of.  @why: a sentence
 */
void ram_reset_template_remove(const char *why);

/**
 * ram_reset_template_retire: the snapshot of that identity goes, or has gone
 *
 * Its template goes with it, unless another process uses that, which may be for
 * a copy of the snapshot.  Who has it mapped goes on with it.
 */
void ram_reset_template_retire(const char *identity);

/**
 * ram_reset_template_close: RAM is not any template's any more
 */
void ram_reset_template_close(void);

/**
 * ram_reset_query_template: NULL unless an object has a directory
 */
RamResetTemplateInfo *ram_reset_query_template(void);

/* Set while RAM is mapped from a template, see ram_reset_template_load() */
extern bool ram_reset_any_mapped;

bool ram_reset_do_discard(RAMBlock *rb, uint64_t start, uint64_t len);

/**
 * ram_reset_discard: a range of @rb is going to be discarded, other than by a
 * reset.  Bytes, page aligned; any thread.
 *
 * Returns: true if that has been done, since to discard what is mapped from a
 * template would not make it zero
 */
static inline bool ram_reset_discard(RAMBlock *rb, uint64_t start,
                                     uint64_t len)
{
    if (unlikely(qatomic_read(&ram_reset_tracking))) {
        ram_reset_do_will_change(rb, start, len);
    }
    return unlikely(qatomic_read(&ram_reset_any_mapped)) &&
           ram_reset_do_discard(rb, start, len);
}

/**
 * ram_reset_query_rewind: what is kept; NULL unless rewind=on is used
 */
RamResetRewindInfo *ram_reset_query_rewind(void);

/**
 * ram_reset_unpopulated_begin: find out which pages the host has no memory for
 *
 * Nobody may write to guest RAM while the answers are used.  Without a
 * ram-reset object nothing is found.
 */
void ram_reset_unpopulated_begin(void);
void ram_reset_unpopulated_end(void);

/**
 * ram_reset_is_unpopulated: whether the target page at @page reads zero for
 * want of memory.  False unless that is certain; always false outside of a
 * survey.
 */
bool ram_reset_is_unpopulated(const void *page);

/**
 * ram_reset_query_objects: the ram-reset objects, owned by the caller
 */
RamResetObjectInfoList *ram_reset_query_objects(void);

/**
 * ram_reset_fallbacks: how often a strategy failed at run time so far
 */
uint64_t ram_reset_fallbacks(void);

#endif
