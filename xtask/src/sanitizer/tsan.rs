// SPDX-License-Identifier: MIT OR Apache-2.0

//! ThreadSanitizer with a standard library that was compiled without it.
//!
//! The sanitizer sees only synchronisation that instrumented code does. Generic and inlined parts
//! of std are instrumented along with the crate that uses them; a few functions are not: the slow
//! paths of locks, condition variables, `Once` and scoped threads. And it ignores fences, on which
//! every `Arc` of such a std relies. So two small C files stand between: `std.c` tells the
//! sanitizer what those functions do, `fences.c` gives fences their effect. The linker's `--wrap`
//! puts them in the way.
//!
//! The part that remains unseen (`suppressions.txt` has the counts that threads are freed by):
//! atomics inside std that no wrapped function covers. A report that names only std's own objects
//! is suspicious of being one of these; a report about an object of ours is not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A function of std, by parts of its mangled name (the same in both manglings), and what the
/// macro in `std.c` is called that stands for the whole name.
struct Wrapped {
    name: &'static str,
    parts: [&'static str; 2],
}

const WRAPPED: &[Wrapped] = &[
    Wrapped { name: "MUTEX_LOCK", parts: ["5mutex5futex", "5Mutex14lock_contended"] },
    Wrapped { name: "RWLOCK_READ", parts: ["6rwlock5futex", "6RwLock14read_contended"] },
    Wrapped { name: "RWLOCK_WRITE", parts: ["6rwlock5futex", "6RwLock15write_contended"] },
    Wrapped { name: "CONDVAR_WAIT", parts: ["7condvar5futex", "7Condvar4wait"] },
    Wrapped { name: "CONDVAR_TIMEOUT", parts: ["7condvar5futex", "7Condvar12wait_timeout"] },
    Wrapped { name: "ONCE_CALL", parts: ["4once5futex", "4Once4call"] },
    Wrapped { name: "SCOPE_END", parts: ["6scoped", "ScopeData29decrement_num_running_threads"] },
];

const WIDTHS: [u32; 4] = [8, 16, 32, 64];
const ATOMICS: &[&str] = &[
    "load",
    "store",
    "exchange",
    "compare_exchange_val",
    "fetch_add",
    "fetch_sub",
    "fetch_and",
    "fetch_or",
    "fetch_xor",
    "fetch_nand",
];

/// Compiles the C files into `dir` and returns the flags that link them in.
pub(super) fn flags(dir: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(dir)?;
    let names = std_names()?;
    let defines: Vec<String> =
        WRAPPED.iter().zip(&names).map(|(w, name)| format!("-D{}={name}", w.name)).collect();
    let objects = [compile(dir, "std", &defines)?, compile(dir, "fences", &[])?];
    // std has another value of this flag; that is what the C files are for.
    let mut flags = vec!["-Cunsafe-allow-abi-mismatch=sanitizer".to_owned()];
    // The sanitizer sees system calls only where they go through libc. Of TCP sockets it is told,
    // by iwarp-os's `stream.rs`: their calls do not, and their descriptors are not where it saw
    // them made.
    flags.push("--cfg=rustix_use_libc".to_owned());
    // Nor does it see assembly: copies of registered memory are the compiler's here.
    flags.push("--cfg=plain_copies".to_owned());
    flags.extend(objects.iter().map(|object| format!("-Clink-arg={}", object.display())));
    let wrapped = names.into_iter().chain(runtime_names());
    flags.extend(wrapped.map(|name| format!("-Clink-arg=-Wl,--wrap={name}")));
    Ok(flags)
}

/// Functions of the sanitizer's runtime that `fences.c` stands before.
pub(super) fn runtime_names() -> impl Iterator<Item = String> {
    let fence = "__tsan_atomic_thread_fence".to_owned();
    let atomics = WIDTHS
        .iter()
        .flat_map(|width| ATOMICS.iter().map(move |op| format!("__tsan_atomic{width}_{op}")));
    atomics.chain([fence])
}

/// ThreadSanitizer's exit status after a report.
const REPORTED: i32 = 66;

/// Makes sure that races are reported and that synchronisation is seen, before anything is
/// concluded from a run: `canary.rs` is built like the crates are.
pub(super) fn check(dir: &Path, options: &str) -> Result<()> {
    let flags = flags(dir)?;
    let program = dir.join("canary");
    let mut rustc = shell::program("rustc");
    rustc.env("RUSTC_BOOTSTRAP", "1").args(["--edition=2024", "-O", "-g", "-Zsanitizer=thread"]);
    rustc.args(flags).arg("-o").arg(&program);
    shell::output(rustc.arg(shell::root().join("xtask/src/sanitizer/canary.rs")))?;
    for race in ["race-plain", "race-locks", "race-relaxed"] {
        let mut command = shell::program(&program);
        let output = command.arg(race).env("TSAN_OPTIONS", options).output()?;
        if output.status.code() != Some(REPORTED) {
            bail!("ThreadSanitizer does not notice {race}: {}", output.status);
        }
    }
    let mut command = shell::program(&program);
    shell::run(command.arg("sound").env("TSAN_OPTIONS", options))
        .context("ThreadSanitizer reports races where there are none")
}

fn compile(dir: &Path, name: &str, defines: &[String]) -> Result<PathBuf> {
    let source = shell::root().join(format!("xtask/src/sanitizer/{name}.c"));
    let object = dir.join(format!("{name}.o"));
    let mut command = shell::program("cc");
    command.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC"]);
    // A panic passes through `Once::call`.
    command.args(["-fexceptions", "-g", "-c", "-o"]).arg(&object).arg(source).args(defines);
    shell::output(&mut command)?;
    Ok(object)
}

/// The mangled names of [`WRAPPED`] in this toolchain's std.
fn std_names() -> Result<Vec<String>> {
    let library = std_library()?;
    // Not `nm`: its plugin stumbles over the bitcode of a newer LLVM.
    let symbols = shell::output(shell::program("readelf").args(["-sW"]).arg(&library))?;
    WRAPPED.iter().map(|wrapped| find(&symbols, wrapped)).collect()
}

fn find(symbols: &str, wrapped: &Wrapped) -> Result<String> {
    let mut names: Vec<&str> = symbols
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns.len() == 8 && columns[3] == "FUNC" && columns[4] == "GLOBAL")
        .filter(|columns| columns[6] != "UND")
        .map(|columns| columns[7])
        .filter(|name| wrapped.parts.iter().all(|part| name.contains(part)))
        .collect();
    names.dedup();
    match names[..] {
        [name] => Ok(name.to_owned()),
        _ => bail!(
            "std of this toolchain has {} functions like {:?}, not 1: its locks cannot be followed",
            names.len(),
            wrapped.parts
        ),
    }
}

fn std_library() -> Result<PathBuf> {
    super::of_toolchain(|name| name.starts_with("libstd-") && name.ends_with(".rlib"))
}

#[cfg(test)]
mod tests {
    use super::{Wrapped, find};

    const MUTEX: Wrapped = Wrapped { name: "M", parts: ["5mutex5futex", "14lock_contended"] };

    #[test]
    fn a_name_is_found_once_or_refused() {
        let global = "  12: 0000 87 FUNC GLOBAL DEFAULT 42 _R5mutex5futexN14lock_contended\n";
        let local = "  13: 0000 87 FUNC LOCAL DEFAULT 42 _RNC5mutex5futexN14lock_contended\n";
        let undefined = "  14: 0000 0 FUNC GLOBAL DEFAULT UND _R5mutex5futexX14lock_contended\n";
        let listing = [global, local, undefined].concat();
        assert_eq!(find(&listing, &MUTEX).unwrap(), "_R5mutex5futexN14lock_contended");
        assert!(find(undefined, &MUTEX).is_err());
        let other = global.replace("_R5", "_RX5");
        assert!(find(&[global, &other].concat(), &MUTEX).is_err());
    }
}
