// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes the exported symbols from `exports.txt`: jumps to libibverbs.so.1, which has the code.
//!
//! The linker must see a library that has those `iwcm_...` symbols. Cargo cannot build one shared
//! library before another, so a stand-in is made here: same soname, same symbols, nothing in it.

mod exports;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the symbols in libibverbs.so.1.
const INTERNAL: &str = "IWARP_PRIVATE_1";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=exports.rs");
    let here = PathBuf::from(env("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(env("OUT_DIR"));
    let exports = exports::read(&here.join("exports.txt"));

    let mut code = String::new();
    for (number, export) in exports.iter().enumerate() {
        let label = format!("__iwarp_export_{number}");
        let (name, version) = (&export.name, &export.version);
        let at = if export.default { "@@" } else { "@" };
        let jump = jump(&format!("iwcm_{name}"));
        writeln!(
            code,
            "::core::arch::global_asm!(\".pushsection .text.{label},\\\"ax\\\",@progbits\", \
             \".globl {label}\", \".type {label},@function\", \"{label}:\", {jump}, \
             \".size {label}, .-{label}\", \".symver {label}, {name}{at}{version}, remove\", \
             \".popsection\");"
        )
        .expect("writing to memory");
    }
    std::fs::write(out.join("exports.rs"), code).expect("OUT_DIR is writable");
    let names: Vec<String> = exports.iter().map(|export| format!("iwcm_{}", export.name)).collect();
    let script = exports::version_script(exports.into_iter().map(|export| export.version));
    let script_path = out.join("versions.map");
    std::fs::write(&script_path, script).expect("OUT_DIR is writable");
    let stand_in = build_stand_in(&out, &names);

    for arg in [
        "-fuse-ld=lld".to_owned(),
        format!("-Wl,--version-script={}", script_path.display()),
        "-Wl,-soname,librdmacm.so.1".to_owned(),
        "-Wl,-z,nodelete".to_owned(),
        // The two belong together, wherever they are put.
        "-Wl,-rpath,$ORIGIN".to_owned(),
        // Needed although rustc asks for --as-needed: the jumps count as a use.
        stand_in.display().to_string(),
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}

fn jump(to: &str) -> String {
    match exports::architecture().as_str() {
        "x86_64" => format!("\"jmp qword ptr [rip + {to}@GOTPCREL]\""),
        "aarch64" => {
            format!("\"adrp x16, :got:{to}\", \"ldr x16, [x16, :got_lo12:{to}]\", \"br x16\"")
        }
        "riscv64" => format!("\"tail {to}@plt\""),
        "s390x" => format!("\"jg {to}@PLT\""),
        other => panic!("no exports for {other} yet: it needs its jump instruction here"),
    }
}

/// Builds the stand-in with the compiler at hand, so that it is for the right target.
fn build_stand_in(out: &Path, names: &[String]) -> PathBuf {
    let mut code = String::from(
        "#![no_std]\n#[panic_handler]\nfn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n",
    );
    for (number, name) in names.iter().enumerate() {
        writeln!(
            code,
            "core::arch::global_asm!(\".text\", \".globl l{number}\", \
             \".type l{number},@function\", \"l{number}: .zero 4\", \
             \".symver l{number}, {name}@@{INTERNAL}, remove\");"
        )
        .expect("writing to memory");
    }
    let folder = out.join("stand-in");
    std::fs::create_dir_all(&folder).expect("OUT_DIR is writable");
    let (source, map) = (folder.join("stand_in.rs"), folder.join("versions.map"));
    let library = folder.join("libibverbs.so");
    std::fs::write(&source, code).expect("OUT_DIR is writable");
    let script = exports::version_script([INTERNAL.to_owned()]);
    std::fs::write(&map, script).expect("OUT_DIR is writable");

    let mut rustc = Command::new(env("RUSTC"));
    rustc.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=stand_in"]);
    rustc.args(["-Cpanic=abort", "-Clink-arg=-nostdlib", "-Clink-arg=-fuse-ld=lld"]);
    rustc.arg("-Clink-arg=-Wl,-soname,libibverbs.so.1");
    rustc.arg(format!("-Clink-arg=-Wl,--version-script={}", map.display()));
    rustc.arg("--target").arg(env("TARGET")).arg("-o").arg(&library).arg(&source);
    if let Some(linker) = std::env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        rustc.arg(option);
    }
    let status = rustc.status().expect("the compiler runs");
    assert!(
        status.success(),
        "the stand-in for libibverbs.so.1 does not build: it takes lld, which Rust brings on x86-64 \
         only; elsewhere the system's package lld"
    );
    library
}

fn env(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name}"))
}
