# SPDX-License-Identifier: GPL-2.0-or-later
# The values of "--qemu-src", for scripts that pass them to
# scripts/prepare-tree; each of these has a die() of its own.

source_forms='a folder or a tarball of QEMU, debian, or debian:RELEASE such as debian:10.2'
source_args=()

# set_source [VALUE]: before there is a cd, as VALUE is the caller's
set_source() {
    case ${1-} in
    '') die "--qemu-src needs $source_forms" ;;
    debian) source_args=(--qemu-src debian) ;;
    debian:*)
        [[ $1 =~ ^debian:[0-9]+\.[0-9]+$ ]] ||
            die "$1 is not a release of Debian's QEMU; give --qemu-src $source_forms"
        source_args=(--qemu-src "$1") ;;
    *)  [ -e "$1" ] ||
            die "$1 does not exist; give --qemu-src $source_forms"
        source_args=(--qemu-src "$(realpath "$1")") ;;
    esac
}
