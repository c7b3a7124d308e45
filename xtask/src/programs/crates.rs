// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rust crates that use RDMA: the tests and examples that come with them, out of crates.io.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{messages, shell};

/// Name and version; also headings of the document.
pub(crate) const SIDEWAY: &str = "sideway 0.4.3";
/// Likewise.
pub(crate) const IBVERBS: &str = "ibverbs 0.9.2";
/// Likewise.
pub(crate) const ASYNC_RDMA: &str = "async-rdma 0.5.0";
/// Likewise.
pub(crate) const RUAPC_RDMA: &str = "ruapc-rdma 0.2.0-alpha.7";
/// All of them.
pub(crate) const ALL: &[&str] = &[SIDEWAY, IBVERBS, ASYNC_RDMA, RUAPC_RDMA];

/// Features of a crate without which there is less to test.
const FEATURES: &[(&str, &str)] = &[(ASYNC_RDMA, "cm,raw"), (RUAPC_RDMA, "ibv-query-gid-ex")];

/// Builds the tests and examples of a crate into `bin`: its test `x` as `crate-x`, as also its
/// example `x`, and the tests inside it as `crate-tests`.
pub(crate) fn build(named: &str, bin: &Path) -> Result<()> {
    let (name, version) = named.split_once(' ').context("a crate has a name and a version")?;
    let folder = shell::target_dir().join("crates");
    let mut cargo = shell::cargo(["test", "--quiet", "--no-run", "--locked"]);
    // There it finds settings that the crate brings.
    cargo.current_dir(copy(name, version, &folder)?);
    if let Some((_, features)) = FEATURES.iter().find(|(of, _)| *of == named) {
        cargo.args(["--features", features]);
    }
    // Built once, not with every toolchain's flags, and with no warning an error, as cargo builds
    // what comes from crates.io.
    cargo.env("CARGO_TARGET_DIR", folder.join("build")).env("RUSTFLAGS", "--cap-lints=allow");
    // It is large, and no debugger will read it.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "none");
    println!("$ cargo test --no-run ({named})");
    let programs = messages::built(&mut cargo)?;
    ensure!(!programs.is_empty(), "{named} has neither tests nor examples");
    for program in programs {
        let target = target(&program);
        // Inside a library's own file name a hyphen is an underscore.
        let own = target.replace('_', "-") == name;
        let what = if own { "tests" } else { target.as_str() };
        fs::copy(&program, bin.join(format!("{name}-{what}")))
            .with_context(|| format!("{}", program.display()))?;
    }
    Ok(())
}

/// Copies the source of a crate from cargo's own store, where it must not be changed, and returns
/// the copy.
fn copy(name: &str, version: &str, folder: &Path) -> Result<PathBuf> {
    if stored(name, version).is_err() {
        fetch(name, version)?;
    }
    let stored = stored(name, version)?;
    fs::create_dir_all(folder)?;
    let own = folder.join(format!("{name}-{version}"));
    let _ = fs::remove_dir_all(&own);
    // With their times: cargo goes by them.
    shell::run(shell::program("cp").args(["--recursive", "--preserve"]).arg(stored).arg(&own))?;
    let manifest = own.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    // A workspace of its own: it is inside another one.
    fs::write(&manifest, text + "\n[workspace]\n")?;
    Ok(own)
}

/// Brings a crate into cargo's store. As a dependency it would have to get along with what
/// crates.io offers today; with the lock file that it brings, it need not.
fn fetch(name: &str, version: &str) -> Result<()> {
    let mut info = shell::cargo(["info", "--quiet", "--registry", "crates-io"]);
    shell::output(info.arg(format!("{name}@{version}"))).map(|_| ())
}

/// The folder in which cargo keeps the source of a crate.
fn stored(name: &str, version: &str) -> Result<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo"))).context("no home")?;
    let registries = home.join("registry/src");
    let found = fs::read_dir(&registries).with_context(|| format!("{}", registries.display()))?;
    let mut found = found.flatten().map(|entry| entry.path().join(format!("{name}-{version}")));
    found
        .find(|path| path.join(".cargo-ok").is_file())
        .with_context(|| format!("cargo has no {name} {version}"))
}

/// The name of what a program was built from: tests carry a hash in theirs.
fn target(program: &Path) -> String {
    let file = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match file.rsplit_once('-') {
        Some((target, hash)) if hash.len() == 16 && !file.contains(' ') => target.to_owned(),
        _ => file,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::executable;

    #[test]
    fn programs_are_found_in_messages_and_named_after_their_targets() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"test_qp"},
            "executable":"/t/debug/deps/test_qp-c6ffae09fe6c45ad","fresh":true}"#;
        let program = executable(message).unwrap();
        assert_eq!(target(&program), "test_qp");
        assert_eq!(target(Path::new("/t/debug/examples/rc_pingpong")), "rc_pingpong");
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
    }
}
