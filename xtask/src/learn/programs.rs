// SPDX-License-Identifier: MIT OR Apache-2.0

//! The book's programs, each in three languages.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::apart;
use crate::dist::Build;
use crate::programs::process::Process;
use crate::shell;

/// A program takes a second or less.
const LIMIT: Duration = Duration::from_secs(30);

/// The way in which a program is run. The device is the one like a RoCE card, but for the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Rust,
    C,
    Python,
    /// C on the device like an iWARP card.
    Rnic,
}

impl Way {
    const ALL: [Self; 4] = [Self::C, Self::Rust, Self::Python, Self::Rnic];

    /// In the name of a file with an output that differs from that of C.
    fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::C => "c",
            Self::Python => "python",
            Self::Rnic => "iwarp",
        }
    }

    /// True if the program's output does not vary. On an RNIC the completion of a wrong Write or
    /// Send may come before the peer's Terminate or behind it.
    fn is_certain(self, name: &str) -> bool {
        self != Self::Rnic || name != "wrong"
    }

    fn command(self, name: &str) -> Command {
        let target = shell::target_dir();
        let under = |personality: &str, program: &Path| {
            let mut command = shell::program(Build::Ci.folder().join("iwarp"));
            command.args(["run", "--personality", personality, "--"]).arg(program);
            command
        };
        match self {
            Self::Rust => shell::program(target.join("debug/examples").join(name)),
            Self::C => under("roce", &compiled(name)),
            Self::Rnic => under("iwarp", &compiled(name)),
            Self::Python => {
                // Debian's interpreter, which has Debian's modules.
                let mut command = under("roce", Path::new("/usr/bin/python3"));
                command.arg("-B").arg(folder("python").join(name).with_extension("py"));
                command
            }
        }
    }
}

fn folder(name: &str) -> PathBuf {
    super::folder().join("programs").join(name)
}

fn compiled(name: &str) -> PathBuf {
    shell::target_dir().join("learn").join(name)
}

/// The names of all programs; each language has them all.
pub(super) fn names() -> Result<BTreeSet<String>> {
    let of = |language: &str, extension: &str, helper: &str| -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for path in files(&folder(language))? {
            if path.extension().is_some_and(|found| found == extension) {
                names.insert(stem(&path));
            }
        }
        names.remove(helper);
        Ok(names)
    };
    let names = of("c", "c", "")?;
    for (language, extension) in [("rust/examples", "rs"), ("python", "py")] {
        let others = of(language, extension, "learn")?;
        ensure!(names == others, "c has {names:?}, {language} has {others:?}");
    }
    Ok(names)
}

/// The files of a folder, in the order of their names.
pub(super) fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    Ok(entries.collect::<Result<Vec<_>, _>>()?.into_iter().map(|entry| entry.path()).collect())
}

/// The name of a file up to its last dot.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Builds what runs programs, and the programs.
pub(super) fn build() -> Result<()> {
    Build::Ci.make()?;
    // All examples with all features, as the step `test` builds them: nothing is built twice.
    shell::run(&mut shell::cargo(["build", "--workspace", "--all-features", "--examples"]))?;
    fs::create_dir_all(compiled(""))?;
    for name in names()? {
        let mut cc = shell::program("cc");
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(compiled(&name));
        cc.arg(folder("c").join(&name).with_extension("c")).args(["-lrdmacm", "-libverbs"]);
        shell::run(&mut cc)?;
    }
    Ok(())
}

/// Runs each program in each way.
pub(super) fn run(write: bool, only: &[String]) -> Result<String> {
    let began = Instant::now();
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    let names = names()?;
    let wanted = |name: &&String| only.is_empty() || only.contains(name);
    for name in names.iter().filter(wanted) {
        for way in Way::ALL.into_iter().filter(|way| way.is_certain(name)) {
            let said = attempt(way, name)?;
            let path = expectation(way, name);
            if write {
                keep(way, name, &said.output)?;
            } else {
                let expected = fs::read_to_string(&path)
                    .with_context(|| format!("{}: cargo xtask learn --write", path.display()))?;
                if said.output != expected {
                    let shown = path.display();
                    wrong.push(format!(
                        "{name} ({}), not as in {shown}:\n{}{}",
                        way.name(),
                        said.output,
                        said.errors
                    ));
                }
            }
            used.insert(path);
            let words = folder("output").join(format!("{name}.words.txt"));
            // The Rust crate says it to the subscriber of `tracing`, if there is one; these
            // programs have none.
            if way != Way::Rust
                && let Ok(text) = fs::read_to_string(&words)
            {
                for line in text.lines().filter(|line| !said.errors.contains(*line)) {
                    wrong.push(format!(
                        "{name} ({}) does not say {line:?}, but\n{}",
                        way.name(),
                        said.errors
                    ));
                }
                used.insert(words);
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    if only.is_empty() && !write {
        let left = &files(&folder("output"))? - &used;
        ensure!(left.is_empty(), "no program has these outputs: {left:?}");
    }
    let (count, took) = (names.iter().filter(wanted).count(), began.elapsed().as_secs_f64());
    Ok(format!("{count} programs in Rust, C and Python print what the book says ({took:.1} s)"))
}

/// The file with the output.
fn expectation(way: Way, name: &str) -> PathBuf {
    let own = folder("output").join(format!("{name}.{}.txt", way.name()));
    if own.exists() { own } else { folder("output").join(format!("{name}.txt")) }
}

/// Output that the others print as C does stands in C's file only.
fn keep(way: Way, name: &str, output: &str) -> Result<()> {
    let common = folder("output").join(format!("{name}.txt"));
    let own = folder("output").join(format!("{name}.{}.txt", way.name()));
    if way != Way::C && fs::read_to_string(&common).is_ok_and(|text| text == output) {
        let _ = fs::remove_file(own);
        return Ok(());
    }
    let path = if way == Way::C { common } else { own };
    fs::write(&path, output).with_context(|| format!("{}", path.display()))
}

struct Said {
    output: String,
    errors: String,
}

fn attempt(way: Way, name: &str) -> Result<Said> {
    let [output, errors] =
        ["out", "err"].map(|stream| compiled(&format!("{name}.{}.{stream}", way.name())));
    let mut command = apart::wrap(&way.command(name))?;
    command.env_remove("IWARP_LOG").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&errors)?);
    let child = command.process_group(0).spawn();
    let mut process = Process(child.with_context(|| format!("cannot start {name}"))?);
    let ended = process.ends(Instant::now() + LIMIT);
    drop(process);
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let said = Said { output: read(&output), errors: read(&errors) };
    match ended {
        Some(status) if status.success() => Ok(said),
        Some(status) => {
            bail!("{name} ({}): {status}\n{}{}", way.name(), said.output, said.errors)
        }
        None => bail!(
            "{name} ({}) does not end within {LIMIT:?}\n{}{}",
            way.name(),
            said.output,
            said.errors
        ),
    }
}
