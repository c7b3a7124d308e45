// SPDX-License-Identifier: MIT OR Apache-2.0

//! The things that these tests have in common: the built libraries, and C programs compiled against
//! the system's headers.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The folder where cargo puts the libraries: that of this test.
pub(crate) fn built() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows where it is");
    exe.parent().expect("an executable is in a folder").to_owned()
}

/// A folder with the libraries under the names that programs look for.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = scratch("lib");
        for library in ["libibverbs", "librdmacm"] {
            let from = built().join(format!("{library}.so"));
            assert!(from.exists(), "{} is not built", from.display());
            for name in [format!("{library}.so"), format!("{library}.so.1")] {
                let link = folder.join(name);
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(&from, link).unwrap();
            }
        }
        folder
    })
}

/// A folder of this process's own.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let name = format!("{name}-{}", std::process::id());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs a tool; a missing one is reported with the package that has it.
pub(crate) fn tool(name: &str, package: &str, args: &[&str]) -> String {
    let output = Command::new(name)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{name}: {error}; apt-get install {package}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A program of `tests/c` with the headers that it includes, in one text.
pub(crate) fn with_headers(program: &str) -> String {
    program
        .replace("#include \"misuse.h\"", include_str!("../c/misuse.h"))
        .replace("#include \"told.h\"", include_str!("../c/told.h"))
        .replace("#include \"requests.h\"", include_str!("../c/requests.h"))
        .replace("#include \"pair.h\"", include_str!("../c/pair.h"))
        .replace("#include \"cm.h\"", include_str!("../c/cm.h"))
        .replace("#include \"check.h\"", include_str!("../c/check.h"))
        .replace("#include \"scenarios.h\"", include_str!("../c/scenarios.h"))
}

/// Compiles a C program against the headers of the system, under a sanitizer where `cargo xtask`
/// says how (`IWARP_TEST_CFLAGS`, `IWARP_TEST_LDFLAGS`).
pub(crate) fn compile(name: &str, source: &str, args: &[&str]) -> PathBuf {
    compile_with(name, source, &[], args)
}

/// As [`compile`], with words for the compiler, too.
pub(crate) fn compile_with(name: &str, source: &str, compiler: &[&str], args: &[&str]) -> PathBuf {
    let header = Path::new("/usr/include/infiniband/verbs.h");
    let hint = "apt-get install libibverbs-dev librdmacm-dev";
    assert!(header.exists(), "{} is missing: {hint}", header.display());
    let folder = scratch("c");
    let (code, program) = (folder.join(format!("{name}.c")), folder.join(name));
    std::fs::write(&code, source).unwrap();
    let object = folder.join(format!("{name}.o"));
    let [code, object, out] = [&code, &object, &program].map(|path| path.to_str().unwrap());
    let [compiling, linking] = ["IWARP_TEST_CFLAGS", "IWARP_TEST_LDFLAGS"]
        .map(|name| std::env::var(name).unwrap_or_default());
    let mut all = vec!["-O1", "-g", "-Wall", "-Werror", "-Wno-unused-function", "-pthread"];
    all.extend(compiling.split_whitespace());
    all.extend(compiler);
    tool("cc", "gcc libc6-dev", &[&all[..], &["-c", "-o", object, code]].concat());
    let mut all = vec!["-pthread", "-o", out, object];
    all.extend(compiler);
    all.extend(args);
    all.extend(linking.split_whitespace());
    tool("cc", "gcc libc6-dev", &all);
    program
}

/// Compiles a program of `tests/c` that is linked to the system's libraries, and runs it with
/// ours. It must succeed within a minute.
pub(crate) fn run(name: &str, source: &str, env: &[(&str, &str)]) -> String {
    let program = compile(name, source, &["-libverbs", "-lrdmacm", "-ldl"]);
    let output = run_program(&program, &[], env, Duration::from_secs(60));
    let text = both(&output);
    assert!(output.status.success(), "{name} {env:?}: {}\n{text}", output.status);
    text
}

/// Runs a program with our libraries, under another program where `cargo xtask` says so
/// (`IWARP_TEST_UNDER`); kills it when it takes too long.
pub(crate) fn run_program(
    program: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    limit: Duration,
) -> Output {
    let under = std::env::var("IWARP_TEST_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace();
    let (mut command, limit) = match words.next() {
        None => (Command::new(program), limit),
        Some(first) => {
            let mut command = Command::new(first);
            command.args(words).arg(program);
            (command, 10 * limit)
        }
    };
    // The device with the stricter rules, unless the test says another.
    command.args(args).env("LD_LIBRARY_PATH", libraries());
    command.env("IWARP_PERSONALITY", "iwarp").envs(env.iter().copied());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    // Read meanwhile: a pipe that is full would halt the program.
    let reads = [read(child.stdout.take()), read(child.stderr.take())];
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = reads.map(|read| read.join().unwrap());
    let text = |status| Output { status, stdout, stderr };
    match status {
        Some(status) => text(status),
        None => {
            let said = both(&text(<_>::default()));
            panic!("{} takes longer than {limit:?}:\n{said}", program.display())
        }
    }
}

/// All that comes, in the background.
fn read(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.expect("piped").read_to_end(&mut all).unwrap();
        all
    })
}

fn both(output: &Output) -> String {
    let mut text = String::new();
    for part in [&output.stdout, &output.stderr] {
        let _ = write!(text, "{}", String::from_utf8_lossy(part));
    }
    text
}

/// The user without rights.
const NOBODY: u32 = 65534;

/// A copy of a program where any user may run it with our libraries beside it, and another one
/// that has root's rights then. `None` where that cannot be had.
pub(crate) fn install(program: &Path) -> Option<(PathBuf, PathBuf)> {
    let folder = std::env::temp_dir().join(format!("iwarp-installed-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).ok()?;
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    mode(&folder, 0o755).ok()?;
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        std::fs::copy(libraries().join(library), folder.join(library)).ok()?;
    }
    let [plain, set_uid] = ["plain", "set-uid"].map(|name| folder.join(name));
    for (copy, rights) in [(&plain, 0o755), (&set_uid, 0o4755)] {
        std::fs::copy(program, copy).ok()?;
        std::os::unix::fs::chown(copy, Some(0), Some(0)).ok()?;
        mode(copy, rights).ok()?;
    }
    let output = as_nobody(&set_uid, &[])?;
    output.starts_with("secure 1").then_some((plain, set_uid))
}

/// Runs one of [`install`]'s programs, which must succeed, as a user without rights.
pub(crate) fn run_as_nobody(program: &Path, env: &[(&str, &str)]) -> String {
    as_nobody(program, env).expect("a program that ran before")
}

fn as_nobody(program: &Path, env: &[(&str, &str)]) -> Option<String> {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).uid(NOBODY).gid(NOBODY).current_dir("/");
    let output = command.envs(env.iter().copied()).output().ok()?;
    output.status.success().then(|| both(&output))
}

/// The symbols that a library exports, `name@@VERSION` or `name@VERSION`, sorted.
pub(crate) fn exports(library: &Path) -> Vec<String> {
    let listing = tool("nm", "binutils", &["-D", "--defined-only", library.to_str().unwrap()]);
    let mut symbols: Vec<String> = listing
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().rev();
            let (symbol, kind) = (words.next()?, words.next()?);
            // The versions themselves are absolute symbols.
            (kind != "A").then(|| symbol.to_owned())
        })
        .collect();
    symbols.sort();
    symbols
}
