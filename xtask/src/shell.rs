// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running other programs, always from the root of the workspace.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use anstream::adapter::strip_str;
use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::apart;
use crate::deadline::{Deadline, LONGEST};
use crate::evidence::Evidence;
use crate::unsteady::failures::{Failed, Failures, Runner, Stream};
use crate::unsteady::{self, again};

/// The root of the workspace: of the one that `cargo xtask` was called in, should several share a
/// target directory.
pub(crate) fn root() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    Path::new(&manifest).parent().expect("xtask is a folder of the workspace").to_path_buf()
}

/// The directory in which Cargo puts its builds; each kind of build that would evict another gets a
/// folder of its own below it.
pub(crate) fn target_dir() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A cargo command of the toolchain that runs this program.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = program(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    if command.get_args().any(|argument| argument == "--release") {
        command.envs(release());
    }
    if std::io::stdout().is_terminal() {
        // Some output goes through a pipe on its way.
        command.env("CARGO_TERM_COLOR", "always");
    }
    forget_cargo(&mut command);
    command
}

/// Takes away what `cargo run` sets for this program and does not mean for the builds it starts.
pub(crate) fn forget_cargo(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
}

/// The environment of optimised builds that another program starts.
pub(crate) fn release() -> [(&'static str, OsString); 1] {
    [("RUSTFLAGS", release_flags())]
}

/// Flags of the compiler for optimised builds, which all share: what is shipped does not name the
/// builder's folders, so that it does not depend on where it is built.
fn release_flags() -> OsString {
    let mut flags = env::var_os("RUSTFLAGS").unwrap_or_default();
    let home = env::var_os("CARGO_HOME")
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo").into()));
    let folders = [(home, "/cargo"), (Some(root().into()), "/iwarp")];
    for (folder, name) in folders {
        let folder = folder.and_then(|folder| folder.into_string().ok());
        // Flags are separated by spaces.
        if let Some(folder) = folder.filter(|folder| !folder.contains(char::is_whitespace)) {
            flags.push(format!(" --remap-path-prefix={folder}={name}"));
        }
    }
    flags
}

/// Any command, in the root of the workspace.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// That command for times when nothing else wants a CPU.
pub(crate) fn when_idle(command: &Command) -> Command {
    let mut chrt = program("chrt");
    chrt.args(["--idle", "0"]);
    in_front(chrt, command)
}

/// A program, with its first arguments, that becomes the command.
pub(crate) fn in_front(mut front: Command, command: &Command) -> Command {
    front.arg(command.get_program()).args(command.get_args());
    in_place_of(&mut front, command);
    front
}

/// Gives the command the folder of the other and the changes that it makes to the environment.
pub(crate) fn in_place_of(command: &mut Command, other: &Command) {
    if let Some(folder) = other.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// True if a program of that name is on the path.
pub(crate) fn exists(name: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths).any(|dir| dir.join(name).is_file())
}

/// True if the command can be run and succeeds; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs the command with this program's input and output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", brief(command));
    }
    Ok(())
}

/// Copies a tree; what the file system can share is not copied.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let mut copy = program("cp");
    copy.args(["--recursive", "--preserve=mode,links", "--reflink=auto"]);
    run(copy.arg(from).arg(to))
}

/// The last lines of a text, so many at most.
pub(crate) fn last_lines(text: &str, most: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}

/// The standard output of the command.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", brief(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("output of {}", shown(command)))
}

/// The number of tests that a command ran, read off the closing lines of its test runners.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl Tally {
    fn add_line(&mut self, line: &str) {
        // cargo test: "test result: ok. 3 passed; 0 failed; 1 ignored; ..."
        // nextest:    "     Summary [   0.1s] 4 tests run: 4 passed (1 slow), 1 skipped"
        let counts = if let Some((_, counts)) = line.split_once("test result: ") {
            counts
        } else if line.trim_start().starts_with("Summary [") {
            line.split_once("run: ").map_or("", |(_, counts)| counts)
        } else {
            return;
        };
        self.passed += count_before(counts, " passed");
        self.failed += count_before(counts, " failed");
        self.ignored += count_before(counts, " ignored") + count_before(counts, " skipped");
    }
}

fn count_before(text: &str, word: &str) -> u64 {
    let Some(end) = text.find(word) else { return 0 };
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Runs a command that runs tests, shows its output as it comes and counts the tests. One that does
/// not end in [`LONGEST`] is killed, with a report. A few tests that fail are run again, each by
/// itself: see [`unsteady`].
pub(crate) fn run_counted(command: &mut Command) -> Result<Tally> {
    let mut command = again::going_on(command);
    let Counted { mut tally, failed, end } = count(&mut command)?;
    let Err(error) = end else { return Ok(tally) };
    let Some(failed) = failed else { return Err(error) };
    let run_again = |test: &Failed| {
        let alone = count(&mut again::by_itself(&command, test))?;
        alone.end.with_context(|| format!("{test} fails by itself, too"))?;
        ensure!(alone.tally.passed > 0, "{test} was not found by itself");
        tally.passed += 1;
        Ok(())
    };
    let forgiven = unsteady::forgive(unsteady::step(), &failed, run_again);
    forgiven.with_context(|| format!("{error:#}"))?;
    Ok(tally)
}

/// A command that ran tests.
struct Counted {
    tally: Tally,
    /// The tests that failed, if nothing else did.
    failed: Option<Vec<Failed>>,
    end: Result<()>,
}

/// The sum of the lines of its output.
struct Heard {
    tally: Tally,
    failures: Failures,
    evidence: Evidence,
}

impl Heard {
    fn new(runner: Runner) -> Self {
        let (tally, evidence) = <_>::default();
        Self { tally, failures: Failures::new(runner), evidence }
    }

    fn add_line(&mut self, stream: Stream, line: &str) {
        let line = strip_str(line).to_string();
        self.tally.add_line(&line);
        self.evidence.add_line(&line);
        self.failures.add_line(stream, line.trim_end());
    }
}

fn count(command: &mut Command) -> Result<Counted> {
    announce(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    let deadline = Deadline::of(child.id(), LONGEST);
    let heard = Mutex::new(Heard::new(Runner::of(command)));
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let errors = errors.expect("piped");
        scope.spawn(|| pass_on(errors, Stream::Errors, &heard, std::io::stderr()));
        pass_on(output.expect("piped"), Stream::Output, &heard, std::io::stdout());
    });
    let status = child.wait()?;
    drop(deadline);
    let Heard { tally, failures, evidence } = heard.into_inner().expect("not poisoned");
    let end = match status.success() {
        true => Ok(()),
        false => Err(anyhow!("{} failed: {status}{}", brief(command), evidence.text())),
    };
    Ok(Counted { tally, failed: failures.tests(status.code()), end })
}

fn pass_on(from: impl Read, stream: Stream, heard: &Mutex<Heard>, mut to: impl Write) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
        // When our output is closed there is no reader to tell.
        let _ = to.write_all(&line);
        let text = String::from_utf8_lossy(&line);
        heard.lock().expect("not poisoned").add_line(stream, &text);
        line.clear();
    }
}

fn announce(command: &Command) {
    println!("$ {}", shown(command));
}

/// Program and first argument; the whole command was announced.
fn brief(command: &Command) -> String {
    let words: Vec<&OsStr> =
        [command.get_program()].into_iter().chain(command.get_args()).collect();
    let words = apart::inner(&words);
    let program = Path::new(words[0]);
    let program = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
    match words.get(1) {
        Some(first) if !first.to_string_lossy().starts_with('-') => {
            format!("{program} {}", first.to_string_lossy())
        }
        _ => program.into_owned(),
    }
}

fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        let value = value.map(OsStr::to_string_lossy);
        // Long flag lists and what is only removed would hide the command.
        if let Some(value) = value.filter(|value| value.len() <= 60) {
            words.push(format!("{}='{value}'", name.to_string_lossy()));
        }
    }
    let program = Path::new(command.get_program());
    words.push(program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned());
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_are_counted() {
        let mut tally = Tally::default();
        tally.add_line("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered");
        tally.add_line(
            "     Summary [   0.1s] 40 tests run: 38 passed (1 slow), 2 failed, 5 skipped",
        );
        tally.add_line("an ordinary line: 99 passed");
        assert_eq!(tally, Tally { passed: 41, failed: 2, ignored: 6 });
    }

    #[test]
    fn colours_hide_nothing() {
        let mut heard = Heard::new(Runner::Nextest);
        let lines = [
            "\x1b[31;1m        FAIL\x1b[0m [   0.1s] (1/2) \x1b[35;1ma::it\x1b[0m \x1b[34mx\x1b[0m\r\n",
            "\x1b[31;1m     Summary\x1b[0m [   0.1s] 2 tests run: \x1b[1m1\x1b[0m passed, 1 failed\n",
        ];
        lines.iter().for_each(|line| heard.add_line(Stream::Errors, line));
        assert_eq!(heard.tally, Tally { passed: 1, failed: 1, ignored: 0 });
        let test = Failed { binary: "a::it".to_owned(), name: "x".to_owned() };
        assert_eq!(heard.failures.tests(Some(100)), Some(vec![test]));
    }
}
