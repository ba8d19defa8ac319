/*
 * Changes to the input of a parser
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "target.h"

static const uint64_t numbers[] = {
    0, 1, 2, 3, 5, 7, 8, 16, 64, 127, 128, 255, 256, 4095, 4096, 65535,
    (1 << 24) - 1, 1 << 24, INT32_MAX, UINT32_MAX, UINT64_C(1) << 32,
    UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1, INT64_MAX, UINT64_C(1) << 63,
    UINT64_MAX,
};

/* Characters that start and end the parts of a text */
static const char marks[] = "\"\\{}[]:,=\n-";

static size_t place(GRand *rand, size_t end)
{
    return end ? g_rand_double_range(rand, 0, end) : 0;
}

static void replace(GByteArray *a, size_t at, size_t len, const void *data,
                    size_t new_len)
{
    size_t rest = a->len - at - len;

    if (new_len > len) {
        g_byte_array_set_size(a, a->len + new_len - len);
    }
    memmove(a->data + at + new_len, a->data + at + len, rest);
    memcpy(a->data + at, data, new_len);
    g_byte_array_set_size(a, at + new_len + rest);
}

/* A part of @from is put into @a, which may be the same */
static void copy_part(GRand *rand, GByteArray *a, const GByteArray *from,
                      size_t most, bool over)
{
    size_t at = place(rand, a->len + 1), start = place(rand, from->len);
    size_t len = 1 + place(rand, 300);
    g_autofree uint8_t *part = NULL;

    len = MIN(len, from->len - start);
    part = g_memdup2(from->data + start, len);
    if (len && a->len + len <= most) {
        replace(a, at, over ? MIN(len, a->len - at) : 0, part, len);
    }
}

static void put_number(GRand *rand, GByteArray *a)
{
    uint64_t number = numbers[place(rand, G_N_ELEMENTS(numbers))];
    size_t len = 1 << place(rand, 4), at;
    bool big_endian = g_rand_boolean(rand);
    uint8_t bytes[8];

    if (a->len < len) {
        return;
    }
    number = big_endian ? GUINT64_TO_BE(number << 8 * (8 - len))
                        : GUINT64_TO_LE(number);
    memcpy(bytes, &number, sizeof(bytes));
    at = place(rand, a->len - len + 1);
    memcpy(a->data + at, bytes, len);
}

/* Decimal digits, from a place on, get another value */
static void put_digits(GRand *rand, GByteArray *a, size_t most)
{
    size_t at = place(rand, a->len), len = 0;
    g_autofree char *text = NULL;

    while (at < a->len && !g_ascii_isdigit(a->data[at])) {
        at++;
    }
    while (at + len < a->len && g_ascii_isdigit(a->data[at + len])) {
        len++;
    }
    text = g_strdup_printf("%s%" G_GUINT64_FORMAT,
                           place(rand, 8) ? "" : "-",
                           numbers[place(rand, G_N_ELEMENTS(numbers))]);
    if (len && a->len + strlen(text) <= most) {
        replace(a, at, len, text, strlen(text));
    }
}

/* An object, a member or a word, with the comma behind it */
static bool find_element(GRand *rand, const GByteArray *a, size_t *start,
                         size_t *len)
{
    size_t at = place(rand, a->len), depth = 0;
    uint8_t first = "{\","[place(rand, 3)];

    while (at < a->len && a->data[at] != first) {
        at++;
    }
    at += first == ',' && at < a->len;
    *start = at;
    for (; at < a->len; at++) {
        uint8_t c = a->data[at];

        if (c == ',' && !depth) {
            *len = at + 1 - *start;
            return true;
        }
        depth += c == '{' || c == '[';
        if (c == '}' || c == ']') {
            if (!depth) {
                return false;
            }
            depth--;
        }
    }
    return false;
}

static void repeat(GRand *rand, GByteArray *a, size_t times, size_t most)
{
    g_autoptr(GByteArray) part = g_byte_array_new();
    size_t start, len;

    if (!find_element(rand, a, &start, &len)) {
        return;
    }
    for (size_t i = 0; i < times && a->len + part->len + len <= most; i++) {
        g_byte_array_append(part, a->data + start, len);
    }
    if (part->len) {
        replace(a, start, 0, part->data, part->len);
    }
}

void fuzz_repeat(GRand *rand, GByteArray *input, size_t most)
{
    for (unsigned i = 0; i < 100 && input->len < most / 2; i++) {
        repeat(rand, input, SIZE_MAX, most);
    }
}

static void mutate_once(GRand *rand, GByteArray *a, const GByteArray *other,
                        size_t most)
{
    size_t at = place(rand, a->len), start, len;

    switch ((int)place(rand, 12)) {
    case 0:
        a->data[at] ^= 1 << place(rand, 8);
        break;
    case 1:
        a->data[at] = g_rand_int(rand);
        break;
    case 2:
        put_number(rand, a);
        break;
    case 3:
    case 4:
        put_digits(rand, a, most);
        break;
    case 5:
        len = 1 + place(rand, 100);
        replace(a, at, MIN(a->len - at, len), "", 0);
        break;
    case 6:
        copy_part(rand, a, a, most, g_rand_boolean(rand));
        break;
    case 7:
        copy_part(rand, a, other, most, g_rand_boolean(rand));
        break;
    case 8:
        repeat(rand, a, 1 + place(rand, 20), most);
        break;
    case 9:
        if (find_element(rand, a, &start, &len)) {
            replace(a, start, len, "", 0);
        }
        break;
    case 10:
        /* An end mark, at the end or in the middle */
        at = g_rand_boolean(rand) ? a->len - 1 : at;
        a->data[at] = marks[place(rand, sizeof(marks))];
        break;
    case 11:
        g_byte_array_set_size(a, at);
        break;
    }
}

void fuzz_mutate(GRand *rand, GByteArray *input, const GByteArray *other,
                 size_t most)
{
    for (int i = 1 + place(rand, 4); i && input->len; i--) {
        mutate_once(rand, input, other, most);
    }
    if (place(rand, 8)) {
        target_repair(input);
    }
}
