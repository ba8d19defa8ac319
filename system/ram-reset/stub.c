/*
 * RAM reset: hosts without primitives for it, where no object can be made
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "system/ram-reset-code.h"
#include "system/ram-reset-devices.h"
#include "system/ram-reset-load.h"
#include "system/ram-reset-rewind.h"
#include "system/ram-reset-template.h"

#define STUB(function, value) function { return value; }
#define STUB_VOID(function)   function { }

/* ram-reset.h */
STUB_VOID(void ram_reset_expect_load(void))
STUB(bool ram_reset_backend_alloc(
    HostMemoryBackend *backend,
    bool (*alloc)(HostMemoryBackend *backend, Error **errp),
    Error **errp), alloc(backend, errp))
STUB(bool ram_reset_do_known_zero(const void *host, size_t size), false)
STUB_VOID(void ram_reset_complete_zeroing(void))
STUB_VOID(void ram_reset_do_will_change(RAMBlock *rb, uint64_t start,
                                        uint64_t len))
STUB_VOID(void ram_reset_do_dma_map(RAMBlock *rb, uint64_t start, uint64_t len))
STUB(uint64_t ram_reset_do_dma_unmap(RAMBlock *rb, uint64_t start, uint64_t len,
                                     uint64_t access_len), access_len)
STUB(bool ram_reset_do_discard(RAMBlock *rb, uint64_t start, uint64_t len),
     false)

STUB(bool ram_reset_is_unchanged(const void *opaque), false)
STUB_VOID(void ram_reset_vhost_starts(const struct vhost_dev *dev))

/* ram-reset-code.h */
STUB(bool ram_reset_defers_tb_flush(void), false)

/* ram-reset-load.h */
STUB(bool ram_reset_enabled(void), false)
STUB(bool ram_reset_verify_wanted(void), false)
STUB(const char *ram_reset_load_refusal(void), NULL)
STUB(bool ram_reset_new_vmgenid_wanted(void), false)
STUB(bool ram_reset_covers(RAMBlock *rb), false)
STUB_VOID(void ram_reset_begin(bool all_notified, uint64_t expected))
STUB_VOID(void ram_reset_page_loaded(RAMBlock *rb, ram_addr_t offset,
                                     RamResetPage what))
STUB(uint64_t ram_reset_known_run(RAMBlock *rb, ram_addr_t offset,
                                  uint64_t max), 0)
STUB_VOID(void ram_reset_pages_skipped(RAMBlock *rb, uint64_t pages))
STUB_VOID(void ram_reset_foreach_content(
    RAMBlock *rb, bool (*func)(RAMBlock *rb, uint64_t start,
                               const uint8_t *data, uint64_t len, void *opaque),
    void *opaque))
STUB(RamResetBlockInfoList *ram_reset_finish(bool loaded), NULL)
STUB(RamResetObjectInfoList *ram_reset_query_objects(void), NULL)
STUB(uint64_t ram_reset_fallbacks(void), 0)
STUB_VOID(void ram_reset_unpopulated_begin(void))
STUB_VOID(void ram_reset_unpopulated_end(void))
STUB(bool ram_reset_is_unpopulated(const void *page), false)

/* ram-reset-rewind.h */
STUB_VOID(void ram_reset_slots_change(bool change))
STUB(GArray *ram_reset_map_copy(void), NULL)
STUB(bool ram_reset_map_freeze(const GArray *map), false)
STUB_VOID(void ram_reset_map_thaw(void))
STUB_VOID(void ram_reset_code_finish(bool valid, bool loaded))
STUB(bool ram_reset_rewind_wanted(void), false)
STUB(bool ram_reset_unchanged_devices_wanted(void), false)
STUB(RamResetSaveKind ram_reset_save_kind(void), RAM_RESET_SAVE_KIND_IMAGE)
STUB(uint64_t ram_reset_take_point(bool loaded, uint64_t point,
                                   RamResetPageStore *store,
                                   RamResetMakeRoom *make_room), 0)
STUB(bool ram_reset_pin_point(uint64_t point, Error **errp), false)
STUB_VOID(void ram_reset_unpin_point(uint64_t point))
STUB_VOID(void ram_reset_pin_by_user(uint64_t point, bool pinned))
STUB(bool ram_reset_point_block(uint64_t point, unsigned nr, const char **name,
                                uint64_t *pages), false)
STUB(const uint8_t *ram_reset_point_page(uint64_t point, unsigned block,
                                         uint64_t page), NULL)
STUB_VOID(void ram_reset_point_diff(uint64_t point, uint64_t other,
                                    unsigned block, unsigned long *pages))
STUB(uint64_t ram_reset_point_count_diff(uint64_t point, uint64_t other), 0)
STUB(bool ram_reset_point_fits(uint64_t point), false)
STUB(bool ram_reset_point_is_whole(uint64_t point), false)
STUB(bool ram_reset_copy_point(uint64_t point, Error **errp), false)
STUB(bool ram_reset_has_point(uint64_t point), false)
STUB(uint64_t ram_reset_own_pages(uint64_t point), 0)
STUB(uint64_t ram_reset_points_size(const GArray *numbers), 0)
STUB_VOID(void ram_reset_query_point(uint64_t point,
                                     RamResetKnownSnapshot *info))
STUB_VOID(void ram_reset_drop_point(uint64_t point))
STUB_VOID(void ram_reset_keep_log(void))
STUB_VOID(void ram_reset_drop_baseline(RamResetBlockerId why))
STUB_VOID(void ram_reset_block_baseline(RamResetBlockerId why))
STUB_VOID(void ram_reset_lose_position(RamResetBlockerId why))
STUB(const RamResetBlocker *ram_reset_rewind_blocker(void), NULL)
STUB(bool ram_reset_rewind(uint64_t point, Error **errp), false)
STUB(RamResetRewindInfo *ram_reset_query_rewind(void), NULL)
STUB_VOID(void ram_reset_stop_tracking(void))

/* ram-reset-template.h */
STUB(bool ram_reset_templates_wanted(void), false)
STUB(bool ram_reset_template_find(const char *identity, int64_t *note), false)
STUB(bool ram_reset_template_load(void), false)
STUB_VOID(void ram_reset_template_make(const char *identity, int64_t note,
                                       bool loaded))
STUB(bool ram_reset_has_template(void), false)
STUB(char *ram_reset_template_path(void), NULL)
STUB_VOID(void ram_reset_template_remove(const char *why))
STUB_VOID(void ram_reset_template_retire(const char *identity))
STUB(bool ram_reset_migration_file_open(int fd, int own_fd, Error **errp),
     false)
STUB(bool ram_reset_migration_file_map(RAMBlock *rb, uint64_t offset,
                                       const unsigned long *stored,
                                       uint64_t *pages, Error **errp), false)
STUB(bool ram_reset_migration_file_end(const char *path, Error **errp), true)
STUB_VOID(void ram_reset_migration_file_give_back(const char *path))
STUB_VOID(void ram_reset_migration_file_close(void))
STUB_VOID(void ram_reset_template_close(void))
STUB(RamResetTemplateInfo *ram_reset_query_template(void), NULL)

/* ram-reset-devices.h */
STUB_VOID(void ram_reset_devices_distrust(DeviceState *dev,
                                          const char *problem))
STUB_VOID(void ram_reset_devices_copy(void))
STUB_VOID(void ram_reset_devices_drop_copy(void))
STUB(unsigned ram_reset_devices_begin_reset(bool map,
                                            const RamResetSections *stream), 0)
STUB_VOID(void ram_reset_devices_complete_reset(void))
STUB_VOID(void ram_reset_devices_renew(void))
STUB(bool ram_reset_devices_end_reset(void), true)
STUB(unsigned ram_reset_devices_count(void), 0)
STUB(RamResetLoadedDevicesList *ram_reset_query_loaded_devices(void), NULL)
