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
bool mem_is_huge(MemKind kind);

/* The reason why this host has no such memory; NULL if it has */
const char *mem_missing(MemKind kind);

/* Skip the running test if the host has no such memory */
bool mem_skip(MemKind kind);

/*
 * A hugetlbfs of the test; NULL if the test may not mount one.  Others see it
 * only by way of the test's descriptor, so it ends with the test, even in a
 * crash.
 */
const char *mem_huge_dir(void);

/* A file of /sys/kernel/mm/hugepages for 2 MiB pages, such as "free" */
uint64_t hugepages(const char *what);

/* A machine to be tested, one per architecture */
typedef struct Machine {
    const char *args;       /* arguments of the command line */
    uint64_t ram;           /* guest address of the first byte of RAM */
    uint64_t dimm;          /* guest address of the first pc-dimm */
    const char *ram_id;     /* id of the backend that the machine makes */
    uint64_t low_end;       /* from there to 1 MiB the guest has no RAM */
    unsigned reset_pages;   /* pages that a reset writes, except a rewind's */
    bool is_pc;
} Machine;

const Machine *the_machine(void);

/* On aarch64: give the_machine() target pages of 1 KiB from now on */
void use_small_pages(bool on);

#define LOW_END (the_machine()->low_end)

/*
 * The machine with a qcow2 disk, under -accel qtest.  RAM is the backend
 * "ram".  Tests read all of it through the memory of the process, also RAM that
 * a ROM hides from the guest.
 */
typedef struct Vm {
    QTestState *qts;
    char *disk;
    char *ram_file;     /* MEM_FILE and MEM_HUGETLB_FILE only */
    const char *ram_props;  /* more properties of the backend, or NULL */
    uint64_t size;
    uint64_t hva;
    int mem;            /* /proc/PID/mem */
} Vm;

/* The name of a new file, ending in ".@suffix"; the caller frees it */
char *temp_name(const char *suffix);

/* @extra: more arguments of the command line, or "" */
Vm *vm_start(MemKind kind, uint64_t size, const char *extra);

/* End QEMU, and start it again with the same disk and RAM file */
void vm_stop(Vm *vm);
void vm_run(Vm *vm, MemKind kind, uint64_t size, const char *extra);

/* The byte that fills the disk's first 64 KiB, while QEMU is stopped */
void disk_write(Vm *vm, uint8_t byte);
uint8_t disk_read(Vm *vm);

void vm_end(Vm *vm);

/*
 * A file for costs= of ram-reset-auto, with costs in ns per page of 4 KiB, the
 * same for each kind of memory.  The caller unlinks it and frees the name.
 */
char *costs_file(double clear, double discard, double remap, double fault);

/*
 * The object under test: "ram-reset-@strategy"; "" for NULL.  A hugefile object
 * serves memory backend "ram", and has a state file of the test.  "auto-split"
 * is ram-reset-auto with costs for which it splits a block.
 */
char *vm_object(const char *strategy, const char *props);

/* @object, and a pc-dimm at DIMM whose backend, "more", is of this type */
#define DIMM (the_machine()->dimm - the_machine()->ram)
char *vm_dimm(const char *object, const char *type, ...) G_GNUC_PRINTF(2, 3);

/* HMP savevm and loadvm, which must succeed */
void vm_hmp_ok(Vm *vm, const char *fmt, ...) G_GNUC_PRINTF(2, 3);
void vm_save(Vm *vm, const char *tag);
void vm_load(Vm *vm, const char *tag);

/* HMP loadvm, which must fail with @message in its output */
void vm_load_says(Vm *vm, const char *tag, const char *message);

/*
 * Writes and reads of the guest, at an offset from the first byte of RAM.  A
 * range must be above 1M or below LOW_END: between them a ROM covers RAM, or a
 * reset writes to it.
 */
void vm_fill(Vm *vm, uint64_t addr, uint64_t len, uint8_t byte);
void vm_random(Vm *vm, GRand *rand, uint64_t addr, uint64_t len);
uint8_t vm_byte(Vm *vm, uint64_t addr);

/* All of RAM; the caller frees it */
uint8_t *vm_content(Vm *vm);
void vm_assert_content(Vm *vm, const uint8_t *expected);

/* Number of 4 KiB pages that are not zero */
uint64_t pages_with_data(const uint8_t *content, uint64_t size);

/* Number of such pages that are zero in @after */
uint64_t pages_to_clear(const uint8_t *before, const uint8_t *after,
                        uint64_t size);

/*
 * The strategy that a load uses: the object's, or clearing in place; NULL if
 * either may be used
 */
const char *expected_strategy(const char *strategy, MemKind kind);

/* Words in the reason why the requested strategy is not used; NULL if it is */
const char *expected_reason(const char *strategy, MemKind kind);

/* query-ram-reset; a number in its result; the block in its last-load */
QDict *vm_query(Vm *vm);
uint64_t vm_counter(Vm *vm, const char *name);
QDict *vm_query_block(Vm *vm, const char *name);

/* Set a migration capability */
void vm_set_capability(Vm *vm, const char *name, bool on);

/* From /proc/PID/status or the smaps entry of RAM, in KiB */
uint64_t vm_status_kib(Vm *vm, const char *field);
uint64_t vm_smaps_kib(Vm *vm, const char *field);

/* Resident RAM in KiB, hugepages included */
uint64_t vm_ram_kib(Vm *vm);

/* Resident memory of the process, without pages of programs and libraries */
uint64_t vm_resident_kib(Vm *vm);

/* The NUMA policy of RAM in numa_maps, owned by the caller */
char *vm_numa_policy(Vm *vm);

/* The VmFlags of RAM in smaps, each two letters and a space */
char *vm_smaps_flags(Vm *vm);

/* Whether the kernel has PAGEMAP_SCAN, as Linux has from 6.7 on */
bool can_scan_page_tables(void);

/* Number of lines in /proc/PID/maps, and number of open files */
unsigned vm_mappings(Vm *vm);
unsigned vm_fds(Vm *vm);

/* Number of rounds: @full with ./test --all, otherwise @few */
unsigned rounds(unsigned full, unsigned few);

/*
 * QEMU must refuse to start with @args, with a message that has @message and
 * names @object, and exit with status 1.
 */
void assert_no_start(const char *args, const char *object,
                     const char *message);

/*
 * Add a test "ram-reset/@path/STRATEGY" for each strategy that serves any
 * memory, without --all for two; @func gets its name
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

/* Tests that count the host's hugepages, take most of them, or compare times */
void add_hugepage_tests(void);
void add_leak_tests(bool with_hugepages);
void add_timing_tests(void);
void add_count_tests(bool with_hugepages);

#endif
