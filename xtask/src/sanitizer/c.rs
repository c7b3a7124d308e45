// SPDX-License-Identifier: MIT OR Apache-2.0

//! C programs under a sanitizer, with the drop-in libraries that were built under it.
//!
//! A library of Rust's brings no runtime, as that belongs into the program. GCC instruments the
//! program, and rustc's runtime is linked into it: both call it by the same names, while GCC's own
//! runtime lacks what newer compilers ask for.

use anyhow::Result;

use super::{Sanitizer, of_toolchain, tsan};

/// Environment for the tests: how to compile such a program, and how to link it.
pub(super) fn flags(sanitizer: Sanitizer) -> Result<[(&'static str, String); 2]> {
    let (short, name) = match sanitizer {
        Sanitizer::Address => ("asan", "address"),
        Sanitizer::Thread => ("tsan", "thread"),
    };
    let archive = format!("_rt.{short}.a");
    let runtime = of_toolchain(|file| file.starts_with("librustc-") && file.ends_with(&archive))?;
    let mut linking = vec![
        "-Wl,--whole-archive".to_owned(),
        runtime.display().to_string(),
        "-Wl,--no-whole-archive".to_owned(),
        // The libraries look for the runtime in the program.
        "-Wl,--export-dynamic".to_owned(),
    ];
    if sanitizer == Sanitizer::Thread {
        // The name by which `fences.c` in a library calls the original.
        let original = |name: String| format!("-Wl,--defsym=__real_{name}={name}");
        linking.extend(tsan::runtime_names().map(original));
    }
    linking.extend(["-ldl", "-lrt", "-lm"].map(str::to_owned));
    let compiling = format!("-fsanitize={name} -fno-omit-frame-pointer");
    Ok([("IWARP_TEST_CFLAGS", compiling), ("IWARP_TEST_LDFLAGS", linking.join(" "))])
}
