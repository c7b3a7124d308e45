// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes the exported symbols, with their versions, from `exports.txt`.
//!
//! rustc cannot give a symbol a version. So each export is a jump in assembler that `.symver`
//! binds to name and version; the function behind it is an ordinary Rust function of iwarp-capi.
//! The inline functions of `infiniband/verbs.h` that post and poll do not come this way: they call
//! through the pointers in the context.

mod exports;

use std::fmt::Write as _;
use std::path::PathBuf;

use exports::Export;

/// Version of the symbols that librdmacm.so.1 jumps to.
const INTERNAL: &str = "IWARP_PRIVATE_1";

/// Version of the symbols that programs of before 2007 call.
const HISTORICAL: &str = "IBVERBS_1.0";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=exports.rs");
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));

    let mut all = exports::read(&here.join("exports.txt"));
    all.extend(exports::read(&here.join("rdmacm.txt")).into_iter().map(|export| {
        let name = format!("iwcm_{}", export.name);
        Export { name, version: INTERNAL.to_owned(), default: true, ..export }
    }));

    let mut code = String::new();
    for (number, export) in all.iter().enumerate() {
        write_export(&mut code, number, export);
    }
    std::fs::write(out.join("exports.rs"), code).expect("OUT_DIR is writable");
    let script = exports::version_script(all.into_iter().map(|export| export.version));
    let script_path = out.join("versions.map");
    std::fs::write(&script_path, script).expect("OUT_DIR is writable");

    for arg in [
        // With GNU ld the version scripts clash; with lld they add up. Named so that a toolchain
        // without lld says that it is missing.
        "-fuse-ld=lld".to_owned(),
        format!("-Wl,--version-script={}", script_path.display()),
        "-Wl,-soname,libibverbs.so.1".to_owned(),
        // The engine's threads run its code, and programs dlclose().
        "-Wl,-z,nodelete".to_owned(),
    ] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}

fn write_export(code: &mut String, number: usize, export: &Export) {
    let at = if export.default { "@@" } else { "@" };
    let (name, version) = (&export.name, &export.version);
    let symver = format!(".symver __iwarp_export_{number}, {name}{at}{version}, remove");
    let label = format!("__iwarp_export_{number}");
    let target = match export.target.as_str() {
        "DATA" => {
            writeln!(
                code,
                "::core::arch::global_asm!(\".pushsection .bss.{label},\\\"aw\\\",@nobits\", \
                 \".globl {label}\", \".type {label},@object\", \".size {label}, 1\", \
                 \"{label}: .zero 1\", \"{symver}\", \".popsection\");"
            )
            .expect("writing to memory");
            return;
        }
        "STUB_INT" => write_stub(code, number, export, "errno", "::core::ffi::c_int"),
        "STUB_MINUS" => write_stub(code, number, export, "minus_one", "::core::ffi::c_int"),
        "STUB_PTR" => write_stub(code, number, export, "null", "*mut ::core::ffi::c_void"),
        "STUB_VOID" => "::iwarp_capi::verbs::unsupported::nothing".to_owned(),
        path => format!("::iwarp_capi::{path}"),
    };
    let jump = match exports::architecture().as_str() {
        "x86_64" => "jmp",
        "aarch64" => "b",
        "riscv64" => "tail",
        "s390x" => "jg",
        other => panic!("no exports for {other} yet: it needs its jump instruction here"),
    };
    writeln!(
        code,
        "::core::arch::global_asm!(\".pushsection .text.{label},\\\"ax\\\",@progbits\", \
         \".globl {label}\", \".type {label},@function\", \"{label}: {jump} {{target}}\", \
         \".size {label}, .-{label}\", \"{symver}\", \".popsection\", target = sym {target});"
    )
    .expect("writing to memory");
}

/// A function that fails and knows its own name, to tell the user. Returns how it is called here.
fn write_stub(
    code: &mut String,
    number: usize,
    export: &Export,
    kind: &str,
    result: &str,
) -> String {
    let name = export.name.trim_start_matches("iwcm_");
    let missing = if export.version == HISTORICAL && !export.default {
        "History".to_owned()
    } else {
        format!("Feature(\"{name}\")")
    };
    let stub = format!("iwarp_stub_{number}");
    writeln!(
        code,
        "extern \"C\" fn {stub}() -> {result} {{ use ::iwarp_capi::verbs::unsupported; \
         unsupported::{kind}(unsupported::Missing::{missing}) }}"
    )
    .expect("writing to memory");
    stub
}
