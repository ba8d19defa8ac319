/*
 * vCPUs while their threads wait
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hw/core/cpu.h"
#include "qemu/main-loop.h"
#include "qemu/thread.h"
#include "system/cpus.h"
#include "system/ram-reset-compat.h"
#include "system/ram-reset-load.h"
#include "system/runstate.h"
#include "migration/ram-reset.h"
#include "system/ram-reset/machine/vcpus-helper.h"
#include "system/ram-reset/machine/vcpus.h"

typedef struct Borrowed {
    CPUState *cpu;
    QemuThread *thread;
} Borrowed;

/* Protected by the BQL */
static struct {
    unsigned depth;
    QemuThread self;            /* the thread that has borrowed them */
    GArray *cpus;
    const AccelOpsClass *ops;
    AccelOpsClass own;
    bool resetting;             /* in the system reset of a load */
    GHashTable *unread;         /* see ram_reset_vcpu_skip_read() */
    GPtrArray *later;           /* not yet written */
    bool notified;              /* of each stop and resume */
    bool drained;               /* no queued work; only if @notified */
    CPUState *idle;             /* has stopped for a function */
} vcpus;

/* @function sees @cpu as the vCPU of its own thread */
static void vcpus_call(void (*function)(CPUState *cpu), CPUState *cpu)
{
    CPUState *was = current_cpu;

    current_cpu = cpu;
    function(cpu);
    current_cpu = was;
    /* its own thread would stop, as vm_stop() for an error asks; it has */
    cpu->stop = false;
}

static void synchronize_state(CPUState *cpu)
{
    if (vcpus.resetting && ram_reset_vcpu_skip_read(cpu)) {
        g_hash_table_add(vcpus.unread, cpu);
    } else {
        vcpus_call(vcpus.ops->synchronize_state, cpu);
    }
}

static bool is_unread(CPUState *cpu)
{
    return vcpus.unread && g_hash_table_contains(vcpus.unread, cpu);
}

/* The load writes a vCPU that was not read */
static void synchronize_post_reset(CPUState *cpu)
{
    if (vcpus.resetting && is_unread(cpu)) {
        ram_reset_vcpu_clear(cpu);
    } else {
        vcpus_call(vcpus.ops->synchronize_post_reset, cpu);
    }
}

static void write_later(void)
{
    ram_reset_vcpus_side_by_side(vcpus.later, ram_reset_vcpu_put);
    for (unsigned i = 0; i < vcpus.later->len; i++) {
        CPUState *cpu = vcpus.later->pdata[i];

        /* the write has failed: QEMU reports it and exits, with the BQL */
        if (cpu->vcpu_dirty) {
            vcpus_call(vcpus.ops->synchronize_post_init, cpu);
        }
    }
    g_ptr_array_set_size(vcpus.later, 0);
}

/*
 * KVM synchronizes the clocks of the other vCPUs with the first one's, so the
 * first vCPU is written first.
 */
static void synchronize_post_init(CPUState *cpu)
{
    bool last = !CPU_NEXT(cpu);

    if (cpu == first_cpu || !is_unread(cpu) ||
        !ram_reset_vcpu_is_for_later(cpu, first_cpu)) {
        vcpus_call(vcpus.ops->synchronize_post_init, cpu);
    } else {
        g_ptr_array_add(vcpus.later, cpu);
    }
    if (last && vcpus.later) {
        write_later();
    }
}

static void synchronize_pre_loadvm(CPUState *cpu)
{
    vcpus_call(vcpus.ops->synchronize_pre_loadvm, cpu);
}

/*
 * Queued work is still left to the vCPU's own thread, which has been woken up.
 * That thread is not in KVM_RUN, so it needs no signal; this one would get it.
 */
static void vcpus_do_not_kick(CPUState *cpu)
{
}

/* A vCPU may be running and stopped: in the midst of an exit, as vAPIC does */
static bool all_wait(void)
{
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        if (!cpu->created || !cpu->stopped || cpu->unplug ||
            qatomic_read(&cpu->running)) {
            return false;
        }
    }
    return true;
}

static void do_nothing(CPUState *cpu, run_on_cpu_data unused)
{
}

/*
 * A stopped thread does the work that was queued before, some of it without the
 * BQL (async_safe_run_on_cpu()).  When it has done the work that is queued
 * here, it has done all; only its own exits queue more.
 */
static void vcpus_drain(void)
{
    CPUState *cpu;

    if (!vcpus.drained) {
        CPU_FOREACH(cpu) {
            run_on_cpu(cpu, do_nothing, RUN_ON_CPU_NULL);
        }
        vcpus.drained = vcpus.notified && !runstate_is_running();
    }
}

static bool may_borrow(void)
{
    if (!ram_reset_enabled() || !ram_reset_vcpus_are_known() || !all_wait()) {
        return false;
    }
    vcpus_drain();
    /* the BQL was released */
    return all_wait();
}

static void decorate_ops(void)
{
    AccelOpsClass *own = &vcpus.own;

    vcpus.ops = cpus_get_accel();
    *own = *vcpus.ops;
    own->synchronize_state = synchronize_state;
    own->synchronize_post_reset = synchronize_post_reset;
    own->synchronize_post_init = synchronize_post_init;
    own->synchronize_pre_loadvm = synchronize_pre_loadvm;
    own->kick_vcpu_thread = vcpus_do_not_kick;
    cpus_register_accel(own);
}

void ram_reset_vcpus_borrow(void)
{
    CPUState *cpu;

    if (vcpus.depth++ || !may_borrow()) {
        return;
    }
    decorate_ops();
    qemu_thread_get_self(&vcpus.self);
    vcpus.cpus = g_array_new(false, false, sizeof(Borrowed));
    CPU_FOREACH(cpu) {
        Borrowed b = { .cpu = cpu, .thread = cpu->thread };

        g_array_append_val(vcpus.cpus, b);
        cpu->thread = &vcpus.self;
        /* a second request to stop, as after cpu_stop_current() */
        cpu->stop = false;
    }
}

static QemuThread *own_thread(CPUState *cpu)
{
    for (unsigned i = 0; i < vcpus.cpus->len; i++) {
        Borrowed *b = &g_array_index(vcpus.cpus, Borrowed, i);

        if (b->cpu == cpu) {
            return b->thread;
        }
    }
    return cpu->thread;
}

void ram_reset_vcpus_return(void)
{
    CPUState *cpu;

    assert(vcpus.depth);
    if (--vcpus.depth || !vcpus.cpus) {
        return;
    }
    /* some vCPUs may have gone */
    CPU_FOREACH(cpu) {
        cpu->thread = own_thread(cpu);
    }
    g_clear_pointer(&vcpus.cpus, g_array_unref);
    g_clear_pointer(&vcpus.unread, g_hash_table_unref);
    g_clear_pointer(&vcpus.later, g_ptr_array_unref);
    cpus_register_accel(vcpus.ops);
}

void ram_reset_vcpus_begin_reset(void)
{
    if (vcpus.cpus) {
        vcpus.resetting = true;
        vcpus.unread = g_hash_table_new(NULL, NULL);
        vcpus.later = g_ptr_array_new();
    }
}

void ram_reset_vcpus_end_reset(void)
{
    vcpus.resetting = false;
}

void ram_reset_vcpus_stop(RunState state)
{
    bool only = vcpus.idle && vcpus.idle == first_cpu && !CPU_NEXT(first_cpu);

    vcpus.idle = NULL;
    if (!only || !all_wait()) {
        vm_stop(state);
        return;
    }
    vcpus.drained = true;
    ram_reset_vcpus_borrow();
    vm_stop(state);
    if (vcpus.cpus) {
        /* the stop has set it; it would end the next KVM_RUN at once */
        qatomic_set(&first_cpu->exit_request, false);
    }
    ram_reset_vcpus_return();
}

typedef struct Later {
    void (*function)(void *opaque);
    void *opaque;
} Later;

static void do_when_stopped(CPUState *cpu, run_on_cpu_data data)
{
    g_autofree Later *later = data.host_ptr;

    /* earlier work has been done, see vcpus_drain() */
    vcpus.idle = vcpus.notified ? cpu : NULL;
    later->function(later->opaque);
}

void ram_reset_vcpu_stop_current(void (*function)(void *opaque), void *opaque)
{
    Later later = { .function = function, .opaque = opaque };

    vcpus.idle = NULL;
    cpu_stop_current();
    if (!current_cpu || !ram_reset_vcpus_are_known()) {
        function(opaque);
        return;
    }
    /* it is about to stop, and sees without a signal that KVM_RUN ends */
    if (ram_reset_vcpu_exits_at_once()) {
        current_cpu->thread_kicked = true;
    }
    /* if the vCPU is unplugged before, this is lost, and @opaque leaks */
    async_run_on_cpu(current_cpu, do_when_stopped,
                     RUN_ON_CPU_HOST_PTR(g_memdup2(&later, sizeof(later))));
}

/* A stop calls handlers from the highest priority to the lowest */
static void first_handler(void *opaque, bool running, RunState state)
{
    if (running) {
        ram_reset_vcpus_borrow();
    } else {
        ram_reset_vcpus_return();
    }
}

static void accept_signals(CPUState *cpu, run_on_cpu_data unused)
{
    qatomic_set_mb(&cpu->thread_kicked, false);
}

/*
 * QEMU also sends a signal to resume a vCPU, which would end the first KVM_RUN
 * at once.  A waiting thread needs none to wake up.  It accepts signals again
 * before it runs the vCPU, even if it is in the midst of other work.
 */
static void need_no_signal(void)
{
    CPUState *cpu;

    if (!ram_reset_enabled() || !ram_reset_vcpus_are_known() || !all_wait()) {
        return;
    }
    CPU_FOREACH(cpu) {
        cpu->thread_kicked = true;
        async_run_on_cpu(cpu, accept_signals, RUN_ON_CPU_NULL);
    }
}

static void last_handler(void *opaque, bool running, RunState state)
{
    if (running) {
        ram_reset_vcpus_return();
        vcpus.drained = false;
        vcpus.idle = NULL;
        need_no_signal();
    } else {
        ram_reset_vcpus_borrow();
    }
}

void ram_reset_vcpus_at_stop(void)
{
    if (!vcpus.notified) {
        vcpus.notified = true;
        qemu_add_vm_change_state_handler_prio(first_handler, NULL, INT_MIN);
        qemu_add_vm_change_state_handler_prio(last_handler, NULL, INT_MAX);
    }
}
