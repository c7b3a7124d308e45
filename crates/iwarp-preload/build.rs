// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds the three libraries.
//!
//! They are in every process of `iwarp run`, the one in front of its other libraries, the other in
//! a namespace of its own where all that it needed would be loaded once more. So they are without
//! std, which Cargo builds only for programs that abort on panics, and those of this workspace do
//! not. Hence the compiler is called from here, and the results are in the crate as bytes.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    build("audit", &[]);
    build("preload", &["-lc"]);
    // Its fork handlers are to be the first that are registered.
    build("heap", &["-lc", "-Wl,-z,initfirst"]);
}

/// Compiles `src/NAME/mod.rs` into `libiwarp-NAME.so`.
fn build(name: &str, needed: &[&str]) {
    let variable = |name| env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"));
    let source =
        PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("src").join(name).join("mod.rs");
    let out = PathBuf::from(variable("OUT_DIR"));
    let root = out.join(format!("{name}.rs"));
    fs::write(&root, root_module(name, &source)).expect("OUT_DIR is writable");

    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name"]);
    rustc.arg(format!("iwarp_{name}")).arg("--target").arg(variable("TARGET")).arg(&root);
    rustc.args(["-Copt-level=2", "-Cpanic=abort", "-Cstrip=symbols", "-Cdebug-assertions=off"]);
    let soname = format!("-Wl,-soname,libiwarp-{name}.so");
    let link = ["-fuse-ld=lld", "-nostartfiles", "-Wl,--as-needed", "-Wl,-z,defs", &soname];
    rustc.args(link.iter().chain(needed).map(|arg| format!("-Clink-arg={arg}")));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        rustc.arg(option);
    }
    let library = out.join(format!("libiwarp-{name}.so"));
    let status = rustc.arg("-o").arg(&library).status().expect("rustc can be started");
    assert!(
        status.success(),
        "{rustc:?}: it takes lld, which Rust brings on x86-64 only; elsewhere the system's package lld"
    );
}

/// A crate around the module. A panic would be a symbol that is nowhere, so what links has none.
fn root_module(name: &str, source: &Path) -> String {
    format!(
        "#![no_std]
         #[path = {source:?}] mod {name};
         unsafe extern \"C\" {{ fn iwarp_there_is_a_panic() -> !; }}
         #[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! {{
             unsafe {{ iwarp_there_is_a_panic() }}
         }}"
    )
}
