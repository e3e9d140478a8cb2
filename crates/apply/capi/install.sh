#!/bin/sh
# Installs libnigh, its header and the file for pkg-config:
#     cargo build --release --package nigh-capi && crates/apply/capi/install.sh target/release /usr/local
# With DESTDIR, the files are put below that folder, for a package.
set -eu
if [ $# -ne 2 ]; then
    echo "usage: [DESTDIR=FOLDER] install.sh FOLDER_OF_BUILD PREFIX" >&2
    exit 2
fi
built=$1 prefix=$2 own=$(dirname "$0")
to=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$own/../../../Cargo.toml" | head -n 1)
install -d "$to/include" "$to/lib/pkgconfig"
install -m 644 "$own/include/nigh.h" "$to/include/nigh.h"
install -m 755 "$built/libnigh.so" "$to/lib/libnigh.so.$version"
ln -sf "libnigh.so.$version" "$to/lib/libnigh.so.0"
ln -sf libnigh.so.0 "$to/lib/libnigh.so"
install -m 644 "$built/libnigh.a" "$to/lib/libnigh.a"
sed -e "s|@prefix@|$prefix|" -e "s|@version@|$version|" "$own/nigh.pc.in" > "$to/lib/pkgconfig/nigh.pc"
chmod 644 "$to/lib/pkgconfig/nigh.pc"
