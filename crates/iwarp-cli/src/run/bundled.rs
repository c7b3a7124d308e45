// SPDX-License-Identifier: MIT OR Apache-2.0

//! Decides if the dynamic linker replaces the libraries that a program brings along.

use iwarp_os::environment;

use super::program::Located;

/// The first version of glibc with which an audit library that looks at no calls leaves their speed
/// alone.
const QUICK: (u32, u32) = (2, 35);

/// True if replacing them is worth it for a program about which the user has said nothing.
///
/// It is not for one that is linked to the libraries by their own names and has no list of
/// directories of its own, as it finds ours by `LD_LIBRARY_PATH`. For others it is, as they or what
/// they start may bring libraries along. But up to glibc 2.34 every call from one library to
/// another is slower as soon as there is an audit library, so there it is only for programs which
/// are known to do so: Python, and those that have such a list.
pub(super) fn by_default(program: &Located) -> bool {
    let known = program.has_own_path() || program.is_python();
    let plain = ["libibverbs.so.1", "librdmacm.so.1"].iter().any(|name| program.needs(name));
    // They have more thread-local storage than can be had with an audit library.
    let sanitized = ["libtsan.so", "liblsan.so"].iter().any(|name| program.needs(name));
    // It takes what glibc does with one for faults of the program.
    let valgrind = program.path().file_name().is_some_and(|name| name == "valgrind");
    match environment::glibc_version() {
        _ if sanitized || valgrind => false,
        Some(version) if version >= QUICK => known || !plain,
        Some(_) => known,
        None => false,
    }
}

/// The option of GLIBC_TUNABLES that says how many bytes of thread-local storage are kept for the
/// libraries that a program starts with. If there is an audit library, glibc has to know it before
/// it loads them, and supposes 512. (libjemalloc has 3 KiB.)
pub(super) const STORAGE: &str = "glibc.rtld.optional_static_tls";
