//! Rust crates that use RDMA: the tests and examples that come with them, out of crates.io.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{messages, shell};

/// Name and version; also headings of the document.
pub(crate) const SIDEWAY: &str = "sideway 0.4.3";
/// Likewise.
pub(crate) const IBVERBS: &str = "ibverbs 0.9.2";

/// Builds the tests and examples of a crate into `bin`: its test `x` as `crate-x`, as also its
/// example `x`, and the tests inside it as `crate-tests`.
pub(crate) fn build(named: &str, bin: &Path) -> Result<()> {
    let (name, version) = named.split_once(' ').context("a crate has a name and a version")?;
    let folder = shell::target_dir().join("crates");
    let manifest = copy(name, version, &folder)?;
    let mut cargo = shell::cargo(["test", "--quiet", "--no-run", "--locked"]);
    cargo.arg("--manifest-path").arg(manifest);
    // Built once, not with every toolchain's flags.
    cargo.env("CARGO_TARGET_DIR", folder.join("build")).env_remove("RUSTFLAGS");
    println!("$ cargo test --no-run ({named})");
    let programs = messages::built(&mut cargo)?;
    ensure!(!programs.is_empty(), "{named} has neither tests nor examples");
    for program in programs {
        let target = target(&program);
        let what = if target == name { "tests" } else { target.as_str() };
        fs::copy(&program, bin.join(format!("{name}-{what}")))
            .with_context(|| format!("{}", program.display()))?;
    }
    Ok(())
}

/// Copies the source of a crate from cargo's own store, where it must not be changed, and returns
/// its manifest.
fn copy(name: &str, version: &str, folder: &Path) -> Result<PathBuf> {
    let user = folder.join(format!("user-of-{name}"));
    fs::create_dir_all(&user)?;
    // A workspace of its own: it is inside another one.
    let manifest = format!(
        "[workspace]\n[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\npath = \"lib.rs\"\n[dependencies]\n{name} = \"={version}\"\n"
    );
    fs::write(user.join("Cargo.toml"), manifest)?;
    fs::write(user.join("lib.rs"), "")?;
    let mut metadata = shell::cargo(["metadata", "--quiet", "--format-version=1"]);
    let about = shell::output(metadata.arg("--manifest-path").arg(user.join("Cargo.toml")))?;
    let wanted = format!("/{name}-{version}/Cargo.toml");
    let stored = messages::strings_of("manifest_path", &about).find(|path| path.ends_with(&wanted));
    let stored = stored.with_context(|| format!("cargo knows no {name} {version}"))?;
    let stored = Path::new(&stored).parent().context("a manifest is in a folder")?;

    let own = folder.join(format!("{name}-{version}"));
    let _ = fs::remove_dir_all(&own);
    // With their times: cargo goes by them.
    shell::run(shell::program("cp").args(["--recursive", "--preserve"]).arg(stored).arg(&own))?;
    let manifest = own.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text + "\n[workspace]\n")?;
    Ok(manifest)
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
