/*
 * Work on several vCPUs in parallel
 *
 * Waking up each vCPU's own thread takes longer than the work on the vCPU.
 * This wakes up a few helper threads instead; each fetches the next vCPU when
 * it is ready.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/rcu.h"
#include "qemu/thread.h"
#include "system/ram-reset/machine/vcpus-helper.h"

#define MAX_HELPERS 3

static struct {
    bool initialized;
    unsigned helpers;
    QemuSemaphore work;
    QemuCond done;
    /* Protects the members below, and the content of @cpus */
    QemuMutex lock;
    GPtrArray *cpus;
    void (*function)(CPUState *cpu);
    unsigned next, unfinished;
} job;

/* The lock is held */
static void vcpus_helper_work(QemuThread *self)
{
    CPUState *was_current = current_cpu;

    while (job.cpus && job.next < job.cpus->len) {
        CPUState *cpu = job.cpus->pdata[job.next++];
        QemuThread *was = cpu->thread;

        qemu_mutex_unlock(&job.lock);
        cpu->thread = self;
        current_cpu = cpu;
        job.function(cpu);
        current_cpu = was_current;
        cpu->thread = was;
        qemu_mutex_lock(&job.lock);
        if (!--job.unfinished) {
            qemu_cond_signal(&job.done);
        }
    }
}

static void *vcpus_helper_run(void *opaque)
{
    QemuThread self;

    rcu_register_thread();
    qemu_thread_get_self(&self);
    for (;;) {
        qemu_sem_wait(&job.work);
        qemu_mutex_lock(&job.lock);
        vcpus_helper_work(&self);
        qemu_mutex_unlock(&job.lock);
    }
    return NULL;
}

static void vcpus_helper_init(void)
{
    unsigned cpus = g_get_num_processors();

    job.initialized = true;
    qemu_sem_init(&job.work, 0);
    qemu_cond_init(&job.done);
    qemu_mutex_init(&job.lock);
    while (job.helpers < MAX_HELPERS && job.helpers + 1 < cpus) {
        QemuThread thread;

        qemu_thread_create(&thread, "ram-reset-vcpus", vcpus_helper_run, NULL,
                           QEMU_THREAD_DETACHED);
        job.helpers++;
    }
}

void ram_reset_vcpus_side_by_side(GPtrArray *cpus,
                                  void (*function)(CPUState *cpu))
{
    QemuThread self;

    if (!cpus->len) {
        return;
    }
    if (!job.initialized) {
        vcpus_helper_init();
    }
    qemu_thread_get_self(&self);
    qemu_mutex_lock(&job.lock);
    job.cpus = cpus;
    job.function = function;
    job.next = 0;
    job.unfinished = cpus->len;
    for (unsigned i = 0; i < job.helpers && i + 1 < cpus->len; i++) {
        qemu_sem_post(&job.work);
    }
    vcpus_helper_work(&self);
    while (job.unfinished) {
        qemu_cond_wait(&job.done, &job.lock);
    }
    job.cpus = NULL;
    qemu_mutex_unlock(&job.lock);
}
