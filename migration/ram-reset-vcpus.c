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
#include "migration/ram-reset-vcpus-helper.h"
#include "migration/ram-reset-vcpus.h"

typedef struct Borrowed {
    CPUState *cpu;
    QemuThread *thread;
} Borrowed;

/* Protected by the BQL */
static struct {
    unsigned depth;
    QemuThread self;            /* that has borrowed them */
    GArray *cpus;
    const AccelOpsClass *ops;
    AccelOpsClass own;
    bool resetting;             /* by the system reset of a load */
    GHashTable *forgotten;      /* in it */
    GPtrArray *later;           /* that are yet to be written */
    bool hears;                 /* of each stop and resume */
    bool settled;               /* since the stop; only if it hears */
    CPUState *idle;             /* has stopped for a function */
} vcpus;

/* What is called for a vCPU takes it for that of the thread that it is in */
static void call(void (*function)(CPUState *cpu), CPUState *cpu)
{
    CPUState *was = current_cpu;

    current_cpu = cpu;
    function(cpu);
    current_cpu = was;
    /* told to stop, as by vm_stop() for an error, by which its thread would */
    cpu->stop = false;
}

static void synchronize_state(CPUState *cpu)
{
    if (vcpus.resetting && ram_reset_vcpu_forget(cpu)) {
        g_hash_table_add(vcpus.forgotten, cpu);
    } else {
        call(vcpus.ops->synchronize_state, cpu);
    }
}

static bool is_forgotten(CPUState *cpu)
{
    return vcpus.forgotten && g_hash_table_contains(vcpus.forgotten, cpu);
}

/* If not, the load does */
static void synchronize_post_reset(CPUState *cpu)
{
    if (vcpus.resetting && is_forgotten(cpu)) {
        ram_reset_vcpu_clear(cpu);
    } else {
        call(vcpus.ops->synchronize_post_reset, cpu);
    }
}

static void write_later(void)
{
    ram_reset_vcpus_side_by_side(vcpus.later, ram_reset_vcpu_put);
    for (unsigned i = 0; i < vcpus.later->len; i++) {
        CPUState *cpu = vcpus.later->pdata[i];

        /* it has failed: QEMU says so, and exits, which needs the BQL */
        if (cpu->vcpu_dirty) {
            call(vcpus.ops->synchronize_post_init, cpu);
        }
    }
    g_ptr_array_set_size(vcpus.later, 0);
}

/*
 * The first one's clock is the one that KVM synchronizes the others with, so it
 * is written first.
 */
static void synchronize_post_init(CPUState *cpu)
{
    bool last = !CPU_NEXT(cpu);

    if (cpu == first_cpu || !is_forgotten(cpu) ||
        !ram_reset_vcpu_is_for_later(cpu, first_cpu)) {
        call(vcpus.ops->synchronize_post_init, cpu);
    } else {
        g_ptr_array_add(vcpus.later, cpu);
    }
    if (last && vcpus.later) {
        write_later();
    }
}

static void synchronize_pre_loadvm(CPUState *cpu)
{
    call(vcpus.ops->synchronize_pre_loadvm, cpu);
}

/*
 * Work that is only queued is still that of the vCPU's own thread, which has
 * been told already.  It is not in KVM_RUN, so it needs no signal, which this
 * thread would get.
 */
static void kick(CPUState *cpu)
{
}

/* One that is running has stopped in the midst of an exit, as vAPIC does */
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
 * A thread that has stopped does what was queued for it before, and some of
 * that without the BQL (async_safe_run_on_cpu()).  When it comes to what is
 * queued now, it has done all of it; only its own exits queue such work.
 */
static void settle(void)
{
    CPUState *cpu;

    if (!vcpus.settled) {
        CPU_FOREACH(cpu) {
            run_on_cpu(cpu, do_nothing, RUN_ON_CPU_NULL);
        }
        vcpus.settled = vcpus.hears && !runstate_is_running();
    }
}

static bool may_borrow(void)
{
    if (!ram_reset_enabled() || !ram_reset_vcpus_are_known() || !all_wait()) {
        return false;
    }
    settle();
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
    own->kick_vcpu_thread = kick;
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
        /* told to stop when it had already, as after cpu_stop_current() */
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
    /* some may have gone */
    CPU_FOREACH(cpu) {
        cpu->thread = own_thread(cpu);
    }
    g_clear_pointer(&vcpus.cpus, g_array_unref);
    g_clear_pointer(&vcpus.forgotten, g_hash_table_unref);
    g_clear_pointer(&vcpus.later, g_ptr_array_unref);
    cpus_register_accel(vcpus.ops);
}

void ram_reset_vcpus_begin_reset(void)
{
    if (vcpus.cpus) {
        vcpus.resetting = true;
        vcpus.forgotten = g_hash_table_new(NULL, NULL);
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
    vcpus.settled = true;
    ram_reset_vcpus_borrow();
    vm_stop(state);
    if (vcpus.cpus) {
        /* the stop's, which would end its next KVM_RUN at once */
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

    /* what was queued before has been done, see settle() */
    vcpus.idle = vcpus.hears ? cpu : NULL;
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
    /* it is on its way, and needs no signal to see that KVM_RUN ends at once */
    if (ram_reset_vcpu_exits_at_once()) {
        current_cpu->thread_kicked = true;
    }
    /* a vCPU that is unplugged before forgets it, and what @opaque has */
    async_run_on_cpu(current_cpu, do_when_stopped,
                     RUN_ON_CPU_HOST_PTR(g_memdup2(&later, sizeof(later))));
}

/* At a stop, handlers are called from the highest priority to the lowest */
static void first_handler(void *opaque, bool running, RunState state)
{
    if (running) {
        ram_reset_vcpus_borrow();
    } else {
        ram_reset_vcpus_return();
    }
}

static void take_signals(CPUState *cpu, run_on_cpu_data unused)
{
    qatomic_set_mb(&cpu->thread_kicked, false);
}

/*
 * QEMU resumes a vCPU by a signal as well, which would end the first KVM_RUN at
 * once.  A thread that waits hears of it without.  It takes signals again
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
        async_run_on_cpu(cpu, take_signals, RUN_ON_CPU_NULL);
    }
}

static void last_handler(void *opaque, bool running, RunState state)
{
    if (running) {
        ram_reset_vcpus_return();
        vcpus.settled = false;
        vcpus.idle = NULL;
        need_no_signal();
    } else {
        ram_reset_vcpus_borrow();
    }
}

void ram_reset_vcpus_at_stop(void)
{
    if (!vcpus.hears) {
        vcpus.hears = true;
        qemu_add_vm_change_state_handler_prio(first_handler, NULL, INT_MIN);
        qemu_add_vm_change_state_handler_prio(last_handler, NULL, INT_MAX);
    }
}
