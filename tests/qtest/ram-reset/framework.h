/*
 * RAM reset tests: a machine to load snapshots in
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef RAM_RESET_FRAMEWORK_H
#define RAM_RESET_FRAMEWORK_H

#include "libqtest.h"

/* Kinds of guest RAM.  The names appear in the tests' paths. */
typedef enum MemKind {
    MEM_ANON,           /* private, small pages only */
    MEM_THP,            /* private, transparent hugepages */
    MEM_MEMFD,          /* shared memfd */
    MEM_HUGETLB,        /* shared memfd of 2 MiB pages */
    MEM_HUGETLB_PRIVATE,
    MEM_HUGETLB_FILE,   /* shared file with a name, on hugetlbfs */
    MEM_FILE,           /* private mapping of a file that is full of data */
    MEM__MAX
} MemKind;

const char *mem_name(MemKind kind);

/* The size of pages that QEMU maps, in bytes */
uint64_t mem_page_size(MemKind kind);

/* Why this host has no such memory; NULL if it has */
const char *mem_missing(MemKind kind);

/* Skip the test that is running if so */
bool mem_skip(MemKind kind);

/*
 * A hugetlbfs of our own; NULL if we may not mount one.  Nobody sees it but
 * by way of our descriptor, so that it goes when we do, crash or not.
 */
const char *mem_huge_dir(void);

/* A file of /sys/kernel/mm/hugepages for 2 MiB pages, such as "free" */
uint64_t hugepages(const char *what);

/* A machine to be tested, one per architecture */
typedef struct Machine {
    const char *args;       /* of the command line */
    uint64_t ram;           /* the guest's address of RAM's first byte */
    uint64_t dimm;          /* and of the first pc-dimm */
    const char *ram_id;     /* of the backend that the machine makes itself */
    uint64_t low_end;       /* from there to 1 MiB RAM is not the guest's */
    unsigned reset_pages;   /* of RAM, written by a reset but for a rewind's */
    bool is_pc;
} Machine;

const Machine *the_machine(void);

/* On aarch64: from now on the_machine() is one with target pages of 1 KiB */
void use_small_pages(bool on);

#define LOW_END (the_machine()->low_end)

/*
 * The machine with a qcow2 disk, under -accel qtest.  RAM is the backend
 * "ram", whose whole content is read through the process's own memory: RAM that
 * the guest cannot see because a ROM covers it counts as well.
 */
typedef struct Vm {
    QTestState *qts;
    char *disk;
    char *ram_file;     /* MEM_FILE and MEM_HUGETLB_FILE only */
    const char *ram_props;  /* more of them for the backend, or NULL */
    uint64_t size;
    uint64_t hva;
    int mem;            /* /proc/PID/mem */
} Vm;

/* The name of a new file, ending in ".@suffix"; the caller frees it */
char *temp_name(const char *suffix);

/* @extra: more of the command line, or "" */
Vm *vm_start(MemKind kind, uint64_t size, const char *extra);

/* End QEMU, keep the disk and the RAM file; start it again with those */
void vm_stop(Vm *vm);
void vm_run(Vm *vm, MemKind kind, uint64_t size, const char *extra);

/* While QEMU is stopped: what the disk's first 64 KiB are full of */
void disk_write(Vm *vm, uint8_t byte);
uint8_t disk_read(Vm *vm);

void vm_end(Vm *vm);

/*
 * A file for the costs= of ram-reset-auto, for pages of 4 KiB and in ns, the
 * same for each kind of memory; the caller unlinks and frees it.
 */
char *costs_file(double clear, double discard, double remap, double fault);

/*
 * The object under test: "ram-reset-@strategy"; "" for NULL.  A hugefile
 * object serves memory backend "ram", and has a state file of the test's own.
 * "auto-split" is ram-reset-auto with costs that have it split a block.
 */
char *vm_object(const char *strategy, const char *props);

/* @object, and a pc-dimm at DIMM whose backend, "more", is of this type */
#define DIMM (the_machine()->dimm - the_machine()->ram)
char *vm_dimm(const char *object, const char *type, ...) G_GNUC_PRINTF(2, 3);

/* HMP commands, savevm and loadvm, which must succeed */
void vm_hmp_ok(Vm *vm, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
void vm_save(Vm *vm, const char *tag);
void vm_load(Vm *vm, const char *tag);

/* HMP loadvm, which must complain, with @message in what it says */
void vm_load_says(Vm *vm, const char *tag, const char *message);

/*
 * Writes and reads of the guest, at an offset from RAM's first byte: any range
 * from 1M on, or below LOW_END.  Between them a ROM covers RAM, or a reset
 * writes to it.
 */
void vm_fill(Vm *vm, uint64_t addr, uint64_t len, uint8_t byte);
void vm_random(Vm *vm, GRand *rand, uint64_t addr, uint64_t len);
uint8_t vm_byte(Vm *vm, uint64_t addr);

/* All of RAM; the caller frees it */
uint8_t *vm_content(Vm *vm);
void vm_assert_content(Vm *vm, const uint8_t *expected);

/* How many 4 KiB pages are not zero */
uint64_t pages_with_data(const uint8_t *content, uint64_t size);

/* How many of those are zero in @after */
uint64_t pages_to_clear(const uint8_t *before, const uint8_t *after,
                        uint64_t size);

/*
 * The strategy that a load uses: the object's, or clearing in place; NULL if
 * that depends
 */
const char *expected_strategy(const char *strategy, MemKind kind);

/* Words that must be in the reason for not doing as asked; NULL if it does */
const char *expected_reason(const char *strategy, MemKind kind);

/* query-ram-reset; a number of it; the block's part of its last-load */
QDict *vm_query(Vm *vm);
uint64_t vm_counter(Vm *vm, const char *name);
QDict *vm_query_block(Vm *vm, const char *name);

/* A capability of migration */
void vm_set_capability(Vm *vm, const char *name, bool on);

/* From /proc/PID/status or the smaps entry of RAM, in KiB */
uint64_t vm_status_kib(Vm *vm, const char *field);
uint64_t vm_smaps_kib(Vm *vm, const char *field);

/* Resident RAM in KiB, hugepages included */
uint64_t vm_ram_kib(Vm *vm);

/* Resident memory of the process, without pages of programs and libraries */
uint64_t vm_resident_kib(Vm *vm);

/* The NUMA policy of RAM that is in force, as numa_maps has it; to be freed */
char *vm_numa_policy(Vm *vm);

/* The VmFlags of RAM, in smaps: two letters and a space each */
char *vm_smaps_flags(Vm *vm);

/* Whether the kernel has PAGEMAP_SCAN, as Linux has from 6.7 on */
bool can_scan_page_tables(void);

/* How many lines /proc/PID/maps has, and how many files are open */
unsigned vm_mappings(Vm *vm);
unsigned vm_fds(Vm *vm);

/* How often: @full with ./test --all, otherwise @few */
unsigned rounds(unsigned full, unsigned few);

/*
 * QEMU must not start with @args, say @message and name @object; it must
 * exit with status 1 rather than crash.
 */
void assert_no_start(const char *args, const char *object,
                     const char *message);

/*
 * "ram-reset/@path/STRATEGY" for each strategy that serves any memory, whose
 * name @func is given
 */
void add_per_strategy(const char *path, void (*func)(const void *strategy));

void add_roundtrip_tests(void);
void add_memory_tests(void);
void add_untouched_tests(void);
void add_refusal_tests(void);
void add_fallback_tests(void);
void add_verify_tests(void);
void add_attribute_tests(void);
void add_rewind_tests(void);
void add_rewind_random_tests(void);
void add_object_tests(void);
void add_auto_tests(void);
void add_machine_tests(void);

/* These count the host's hugepages, take most of them, or compare times */
void add_hugepage_tests(void);
void add_leak_tests(void);
void add_timing_tests(void);

#endif
