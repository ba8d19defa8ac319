/*
 * Unit tests for system/ram-reset/prim/trusted-file.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <glib/gstdio.h>
#include "system/ram-reset/prim/trusted-file.h"

#define OTHER 12

/* The masks of the callers */
#define TEMPLATE      TRUST_LINKS
#define UNFINISHED    0
#define RECORD        0
#define RAM_FILE      (TRUST_ANY_MODE | TRUST_LINKS)
#define STATE_DIR     (TRUST_DIRECTORY | TRUST_READERS)
#define TEMPLATE_DIR  (TRUST_DIRECTORY | TRUST_ROOT | TRUST_READERS | \
                       TRUST_STICKY)

static const unsigned all_rules[] = {
    TEMPLATE, UNFINISHED, RAM_FILE, STATE_DIR, TEMPLATE_DIR,
};

/* @says: part of the reason; NULL: it is trusted */
static void check(unsigned rules, mode_t mode, uid_t uid, nlink_t names,
                  const char *says)
{
    struct stat st = { .st_mode = mode, .st_uid = uid, .st_nlink = names };
    g_autofree char *reason = trusted_file_refusal(&st, rules);

    g_test_message("rules 0x%x, mode %o, user %u, %u names: %s", rules, mode,
                   uid, (unsigned)names, reason ?: "trusted");
    if (says) {
        g_assert_nonnull(reason);
        g_assert_nonnull(strstr(reason, says));
    } else {
        g_assert_null(reason);
    }
}

static bool wants_dir(unsigned rules)
{
    return rules & TRUST_DIRECTORY;
}

static void test_kind(void)
{
    static const mode_t others[] = { S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK,
                                     S_IFLNK };

    for (unsigned i = 0; i < G_N_ELEMENTS(all_rules); i++) {
        unsigned rules = all_rules[i];
        const char *says = wants_dir(rules) ? "not a directory"
                                            : "not a regular file";

        check(rules, (wants_dir(rules) ? S_IFDIR : S_IFREG) | 0600, geteuid(),
              1, NULL);
        check(rules, (wants_dir(rules) ? S_IFREG : S_IFDIR) | 0600, geteuid(),
              1, says);
        for (unsigned j = 0; j < G_N_ELEMENTS(others); j++) {
            check(rules, others[j] | 0600, geteuid(), 1, says);
        }
    }
}

static void test_owner(void)
{
    for (unsigned i = 0; i < G_N_ELEMENTS(all_rules); i++) {
        unsigned rules = all_rules[i];
        mode_t kind = wants_dir(rules) ? S_IFDIR : S_IFREG;

        check(rules, kind | 0700, geteuid() + OTHER, 1, "belongs to user");
        check(rules, kind | 01700, geteuid() + OTHER, 1, "belongs to user");
    }
}

/* Files of root are QEMU's own if QEMU is root */
static void test_root(void)
{
    const char *says = "belongs to user 0, not to 12 that QEMU runs as";

    if (geteuid() || seteuid(OTHER) < 0) {
        g_test_skip("only root can be another user");
        return;
    }
    check(TEMPLATE_DIR, S_IFDIR | 0755, 0, 2, NULL);
    check(TEMPLATE_DIR, S_IFDIR | 01777, 0, 2, NULL);
    check(TEMPLATE_DIR, S_IFDIR | 0777, 0, 2, "0777");
    check(STATE_DIR, S_IFDIR | 0700, 0, 2, says);
    check(TEMPLATE, S_IFREG | 0600, 0, 1, says);
    check(RECORD, S_IFREG | 0600, 0, 1, says);
    check(RAM_FILE, S_IFREG | 0600, 0, 1, says);
    check(RAM_FILE, S_IFREG | 0600, OTHER, 1, NULL);
    g_assert_cmpint(seteuid(0), ==, 0);
}

/* Each permission of others, for a file and for a directory */
static void test_mode(void)
{
    for (unsigned bits = 0; bits < 01000; bits++) {
        g_autofree char *mode = g_strdup_printf("%03o", bits);
        const char *private = bits & 077 ? mode : NULL;
        const char *unwritable = bits & 022 ? mode : NULL;

        check(TEMPLATE, S_IFREG | bits, geteuid(), 1, private);
        check(RECORD, S_IFREG | bits, geteuid(), 1, private);
        check(RAM_FILE, S_IFREG | bits, geteuid(), 1, NULL);
        check(STATE_DIR, S_IFDIR | bits, geteuid(), 2, unwritable);
        check(STATE_DIR, S_IFDIR | S_ISVTX | bits, geteuid(), 2, unwritable);
        check(TEMPLATE_DIR, S_IFDIR | bits, geteuid(), 2, unwritable);
        check(TEMPLATE_DIR, S_IFDIR | S_ISVTX | bits, geteuid(), 2, NULL);
        /* The sticky bit of a file has another meaning than a directory's */
        check(TRUST_STICKY, S_IFREG | S_ISVTX | bits, geteuid(), 1, private);
        check(TRUST_STICKY | TRUST_READERS, S_IFREG | S_ISVTX | bits,
              geteuid(), 1, unwritable);
    }
}

static void test_names(void)
{
    check(RECORD, S_IFREG | 0600, geteuid(), 2, "more than one name");
    check(UNFINISHED, S_IFREG | 0600, geteuid(), 2, "more than one name");
    check(TEMPLATE, S_IFREG | 0600, geteuid(), 2, NULL);
    check(RAM_FILE, S_IFREG | 0600, geteuid(), 2, NULL);
    check(STATE_DIR, S_IFDIR | 0700, geteuid(), 3, NULL);
}

static void assert_dir(int fd, const char *says)
{
    g_autofree char *reason = trusted_dir_refusal(fd);

    if (says) {
        g_assert_nonnull(reason);
        g_assert_nonnull(strstr(reason, says));
    } else {
        g_assert_null(reason);
    }
}

static void test_directory(void)
{
    g_autofree char *path = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    int dir = open(path, O_RDONLY | O_DIRECTORY);

    assert_dir(fileno(stderr), "not a directory");
    assert_dir(-1, g_strerror(EBADF));
    assert_dir(dir, NULL);
    g_assert_cmpint(fchmod(dir, 0777), ==, 0);
    assert_dir(dir, "0777");
    g_assert_cmpint(fchmod(dir, 01777), ==, 0);
    assert_dir(dir, NULL);
    g_assert_cmpint(fchmod(dir, 0700), ==, 0);
    if (geteuid() == 0) {
        g_assert_cmpint(fchown(dir, OTHER, OTHER), ==, 0);
        assert_dir(dir, "belongs to user 12");
    }
    close(dir);
    rmdir(path);
}

static void assert_not_opened(const char *path, int flags, const char *says)
{
    int fd = trusted_file_open(AT_FDCWD, path, flags);

    g_assert_cmpint(fd, ==, -1);
    g_assert_cmpstr(trusted_file_open_error(errno), ==, says);
}

static void test_open(void)
{
    g_autofree char *dir = g_dir_make_tmp("ram-reset-XXXXXX", NULL);
    g_autofree char *file = g_build_filename(dir, "file", NULL);
    g_autofree char *link = g_build_filename(dir, "link", NULL);
    struct stat st;
    int fd;

    assert_not_opened(file, O_RDONLY, g_strerror(ENOENT));
    g_assert_cmpint(symlink(file, link), ==, 0);
    assert_not_opened(link, O_RDWR | O_CREAT, "it is a symbolic link");
    assert_not_opened(file, O_RDONLY, g_strerror(ENOENT));
    fd = trusted_file_open(AT_FDCWD, file, O_RDWR | O_CREAT);
    g_assert_cmpint(fd, >=, 0);
    g_assert_cmpint(fcntl(fd, F_GETFD), ==, FD_CLOEXEC);
    g_assert_cmpint(fstat(fd, &st), ==, 0);
    g_assert_cmpint(st.st_mode, ==, S_IFREG | 0600);
    g_assert_true(trusted_file_is_ours(&st));
    g_assert_null(trusted_file_fd_refusal(fd, 0));
    close(fd);
    assert_not_opened(link, O_RDONLY, "it is a symbolic link");
    unlink(file);
    /* Nobody has opened the other end */
    g_assert_cmpint(mkfifo(file, 0600), ==, 0);
    fd = trusted_file_open(AT_FDCWD, file, O_RDONLY);
    g_assert_cmpint(fd, >=, 0);
    close(fd);
    unlink(file);
    unlink(link);
    rmdir(dir);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/trusted-file/kind", test_kind);
    g_test_add_func("/trusted-file/owner", test_owner);
    g_test_add_func("/trusted-file/root", test_root);
    g_test_add_func("/trusted-file/mode", test_mode);
    g_test_add_func("/trusted-file/names", test_names);
    g_test_add_func("/trusted-file/directory", test_directory);
    g_test_add_func("/trusted-file/open", test_open);
    return g_test_run();
}
