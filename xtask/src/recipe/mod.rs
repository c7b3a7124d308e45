// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask recipe`: docs/ci.md and the other pages, as their readers would follow them.
//!
//! The shell blocks of docs/ci.md run in their order, in a directory that has what the page says,
//! as a user without rights; then `docs/ci/thousand.sh` does what its head says. The blocks of the
//! other pages run there too, or in the sources. A block that cannot (it needs two hosts, or an
//! hour) begins with
//! ```` ```sh no-test ````.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::dist::{self, Product};
use crate::programs::crates;
use crate::{apart, nobody, shell};

/// Seconds that a job's set-up may take.
const SET_UP: f64 = 10.0;
/// Runs of each kind in `cargo xtask test`.
const FEW: u32 = 50;

/// thousand.sh where users may not make namespaces: it says so at once, and does the rest if told.
const REFUSED: &str = "\
mkdir refusing
printf '#!/bin/sh\\nexit 1\\n' > refusing/unshare
chmod +x refusing/unshare
export PATH=\"$PWD/refusing:$PATH\" RUNS=1
if said=$(./thousand.sh 2>&1); then exit 1; fi
[ \"$said\" = 'thousand.sh: users may not make namespaces here; PLACES=host does without' ]
PLACES=host ./thousand.sh
";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs of each kind, in one network namespace and in one for each
    #[arg(long, default_value_t = 1000)]
    runs: u32,
    /// Runs at a time
    #[arg(long, default_value_t = 8)]
    jobs: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    println!("{}", follow(args)?);
    Ok(())
}

/// For `cargo xtask test`.
pub(crate) fn check() -> Result<String> {
    follow(&Args { runs: FEW, jobs: 8 })
}

fn follow(args: &Args) -> Result<String> {
    let scratch = ScratchDirectory::new()?;
    dist::make(&scratch.directory, &[Product::Tarball], false)?;
    let tests = scratch.directory.join("programs");
    fs::create_dir(&tests)?;
    crates::build(crates::IBVERBS, &tests)?;
    scratch.open()?;

    let page = fs::read_to_string(shell::root().join("docs/ci.md")).context("docs/ci.md")?;
    let blocks = shell_blocks(&page);
    let first = blocks.first().context("docs/ci.md has no shell block")?;
    let began = Instant::now();
    scratch.run("set-up", first).context("docs/ci.md, first block")?;
    let set_up = began.elapsed().as_secs_f64();
    ensure!(set_up < SET_UP, "the set-up of docs/ci.md takes {set_up:.1} s");
    let began = Instant::now();
    // Each goes on where the one before has ended.
    scratch.run("page", &blocks.concat()).context("docs/ci.md")?;
    let page = began.elapsed().as_secs_f64();

    let began = Instant::now();
    let others = follow_others(&scratch, first)?;
    let other_pages = began.elapsed().as_secs_f64();

    let began = Instant::now();
    let thousand = format!("{first}\nexec ./thousand.sh \"$PWD/programs/ibverbs-tests\"\n");
    let variables = format!("export RUNS={} JOBS={}\n", args.runs, args.jobs);
    scratch.run("runs", &(variables + &thousand)).context("docs/ci/thousand.sh")?;
    let refused = format!("{first}{REFUSED}");
    scratch.run("refused", &refused).context("docs/ci/thousand.sh without namespaces")?;
    Ok(format!(
        "set-up in {set_up:.1} s, {} shell blocks in {page:.0} s, {others} of other pages in \
         {other_pages:.0} s, {} runs without a failure in {:.0} s",
        blocks.len(),
        4 * args.runs,
        began.elapsed().as_secs_f64(),
    ))
}

/// The place in which the blocks of a page run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// In the sources, as the user who runs this.
    Sources,
    /// In the folder of the unpacked package, which stands for `/usr/lib/iwarp`, beside
    /// [`PROGRAM`].
    Installed,
    /// They are followed above.
    Recipe,
}

/// The pages that have blocks to run.
const PAGES: [(&str, Where); 3] = [
    ("README.md", Where::Sources),
    ("docs/ci.md", Where::Recipe),
    ("docs/run.md", Where::Installed),
];

/// The `program.c` of the pages, which moves data between two queue pairs of its own.
const PROGRAM: &str = include_str!("program.c");

/// Follows the other pages; returns how many blocks they have.
fn follow_others(scratch: &ScratchDirectory, set_up: &str) -> Result<usize> {
    let mut found = 0;
    for file in pages()? {
        let text = fs::read_to_string(shell::root().join(&file)).with_context(|| file.clone())?;
        let blocks = shell_blocks(&text);
        let place_of = PAGES.iter().find(|(name, _)| *name == file).map(|(_, place)| *place);
        match place_of {
            None => ensure!(blocks.is_empty(), "no place is named where the blocks of {file} run"),
            Some(Where::Recipe) => continue,
            Some(Where::Sources) => {
                let script = format!("set -eu\n{}", blocks.concat());
                let mut sh = shell::program("sh");
                shell::forget_cargo(sh.args(["-c", &script]).envs(shell::release()));
                shell::run(&mut sh).with_context(|| file.clone())?;
            }
            Some(Where::Installed) => {
                let blocks = blocks.concat().replace("/usr/lib/iwarp", "\"$installed\"");
                let there = "installed=$(echo \"$PWD\"/iwarp-*/lib/iwarp)\n";
                let name = file.replace(['/', '.'], "-");
                scratch.run(&name, &format!("{set_up}{there}{blocks}"))?;
            }
        }
        found += blocks.len();
    }
    Ok(found)
}

/// The pages for users and contributors.
fn pages() -> Result<Vec<String>> {
    let which = [":(glob)*.md", ":(glob)docs/*.md", ":(glob)interop/*.md"];
    let list = shell::output(shell::program("git").arg("ls-files").args(which))?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// The commands of the page that are to be run.
fn shell_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line == "```sh") {
        let block = lines.by_ref().take_while(|line| *line != "```");
        blocks.push(block.map(|line| format!("{line}\n")).collect());
    }
    blocks
}

/// A directory that is gone afterwards.
struct ScratchDirectory {
    directory: PathBuf,
}

impl ScratchDirectory {
    fn new() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("iwarp-recipe-{}", std::process::id()));
        fs::create_dir(&directory).with_context(|| format!("{}", directory.display()))?;
        let scratch = Self { directory };
        fs::write(scratch.directory.join("program.c"), PROGRAM)?;
        for name in ["pair.sh", "thousand.sh"] {
            let from = shell::root().join("docs/ci").join(name);
            fs::copy(&from, scratch.directory.join(name))
                .with_context(|| format!("{}", from.display()))?;
        }
        Ok(scratch)
    }

    /// Gives it to the user as whom the page is followed.
    fn open(&self) -> Result<()> {
        fs::set_permissions(&self.directory, Permissions::from_mode(0o755))?;
        let all = ["programs", "programs/ibverbs-tests", "pair.sh", "thousand.sh"];
        for path in all.iter().map(|name| self.directory.join(name)) {
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        }
        nobody::give(&self.directory)
    }

    fn run(&self, name: &str, script: &str) -> Result<()> {
        let path = self.directory.join(format!(".{name}.sh"));
        fs::write(&path, format!("set -eu\n{script}"))?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        shell::run(&mut self.command(&path)?)
    }

    fn command(&self, script: &Path) -> Result<Command> {
        let mut command = shell::program("setpriv");
        command.args(nobody::options()).arg("sh").arg(script);
        let mut command = apart::wrap(&command)?;
        command.env_clear().current_dir(&self.directory);
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("HOME", "/nonexistent").env("LC_ALL", "C");
        Ok(command)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::shell_blocks;

    #[test]
    fn only_blocks_of_sh_are_run() {
        let page =
            "# Page\n```sh\none\ntwo\n```\ntext\n```console\n$ not this\n```\n```sh\nthree\n```";
        assert_eq!(shell_blocks(page), ["one\ntwo\n", "three\n"]);
    }
}
