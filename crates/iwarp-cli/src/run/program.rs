// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kind of a program, and whether the loader would give it other libraries.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};
use rustix::fs::{Access, StatVfsMountFlags, access, getxattr, statvfs};
use rustix::process::{getegid, geteuid};
use rustix::thread::no_new_privs;

/// A program that can be started, with what its file says about it.
pub(super) struct Located {
    path: PathBuf,
    kind: Kind,
}

/// The kind of a file.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A dynamic program for this machine.
    Dynamic(Dynamic),
    /// A program without a loader.
    Static,
    /// A program for another architecture or word size.
    Foreign,
    /// A script, whose interpreter exists.
    Script,
    /// The system may know what it is.
    Other,
}

/// The requests of a dynamic program to its loader.
#[derive(Debug, PartialEq, Eq)]
struct Dynamic {
    interpreter: PathBuf,
    /// It has a list of library directories of its own.
    own_path: bool,
    /// Its list goes before LD_LIBRARY_PATH.
    rpath: bool,
    /// The libraries that it needs, by their names.
    needed: Vec<Vec<u8>>,
}

/// The reason why a program is not started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotFound,
    NotExecutable(PathBuf),
    NotProgram,
    Directory,
    Unreadable(String),
    Static,
    Libc(&'static str),
    Foreign,
    NoLoader(PathBuf),
    NoInterpreter(PathBuf),
    Privileged(&'static str),
}

impl Refusal {
    /// True if there is no such program at all.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::NotFound)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LIST: &str = "if it only starts other programs that can be served: --force";
        match self {
            Self::NotFound => {
                f.write_str("not found; is its package installed, or its path right?")
            }
            Self::NotExecutable(path) => {
                write!(f, "this user may not execute it; try chmod +x {}", path.display())
            }
            Self::NotProgram => f.write_str(
                "is not a program: neither an ELF file nor a script that begins with #!",
            ),
            Self::Directory => f.write_str("is a directory; name the program in it"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::Static => write!(
                f,
                "is statically linked, so it cannot use other libraries; \
                 use a build that is linked dynamically ({LIST})"
            ),
            Self::Libc(name) => write!(
                f,
                "is linked with {name}, but these libraries need glibc; \
                 use a build for glibc ({LIST})"
            ),
            Self::Foreign => write!(
                f,
                "is for another architecture; use a build for {} ({LIST})",
                env::consts::ARCH
            ),
            Self::NoLoader(path) => {
                write!(f, "its loader {} does not exist; install its libc", path.display())
            }
            Self::NoInterpreter(path) => {
                write!(f, "is a script for {}, which does not exist; install it", path.display())
            }
            Self::Privileged(how) => write!(
                f,
                "{how}, so the loader ignores LD_LIBRARY_PATH; \
                 run a copy without that right (cp does not keep it), or run it as its owner"
            ),
        }
    }
}

/// Finds the program as a shell would, and looks at its file.
pub(super) fn locate(name: &OsStr) -> Result<Located, Refusal> {
    let path = search(name)?;
    let kind = kind(&path)?;
    Ok(Located { path, kind })
}

impl Located {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// True if the program's own list of directories goes before LD_LIBRARY_PATH (ld.so(8)).
    pub(super) fn has_rpath(&self) -> bool {
        self.dynamic().is_some_and(|program| program.rpath)
    }

    /// True if the program has a list of directories of its own at all.
    pub(super) fn has_own_path(&self) -> bool {
        self.dynamic().is_some_and(|program| program.own_path)
    }

    /// True if it needs a library whose name begins with `start`.
    pub(super) fn needs(&self, start: &str) -> bool {
        let same = |name: &Vec<u8>| name.starts_with(start.as_bytes());
        self.dynamic().is_some_and(|program| program.needed.iter().any(same))
    }

    fn dynamic(&self) -> Option<&Dynamic> {
        if let Kind::Dynamic(dynamic) = &self.kind { Some(dynamic) } else { None }
    }

    /// True for Python, and for a script, which may well be Python's.
    pub(super) fn is_python(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        name.starts_with(b"python") || matches!(self.kind, Kind::Script)
    }

    /// The reason why the program would not get the libraries, if there is one.
    pub(super) fn obstacle(&self) -> Option<Refusal> {
        let interpreter = match &self.kind {
            Kind::Static => return Some(Refusal::Static),
            Kind::Foreign => return Some(Refusal::Foreign),
            // The program that it starts decides.
            Kind::Script | Kind::Other => return None,
            Kind::Dynamic(Dynamic { interpreter, .. }) => interpreter,
        };
        let loader = interpreter.file_name().unwrap_or_default().as_bytes();
        if loader.starts_with(b"ld-musl-") {
            return Some(Refusal::Libc("musl"));
        }
        if loader.starts_with(b"linker") {
            return Some(Refusal::Libc("bionic"));
        }
        if !interpreter.exists() {
            return Some(Refusal::NoLoader(interpreter.clone()));
        }
        privileges(&self.path).map(Refusal::Privileged)
    }
}

/// Finds a program as execvp(3) does: a name with a slash is a path, any other is looked for.
fn search(name: &OsStr) -> Result<PathBuf, Refusal> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return executable(&path).map(|()| path);
    }
    let list = env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let mut refusal = Refusal::NotFound;
    for directory in env::split_paths(&list) {
        // An empty item is the current directory.
        let path = Path::new(".").join(directory).join(name);
        match executable(&path) {
            Ok(()) => return Ok(path),
            // There may be a better one further on.
            Err(found @ (Refusal::NotExecutable(_) | Refusal::NotProgram)) => refusal = found,
            Err(_) => {}
        }
    }
    Err(refusal)
}

fn executable(path: &Path) -> Result<(), Refusal> {
    let about = fs::metadata(path).map_err(|_| Refusal::NotFound)?;
    if about.is_dir() {
        return Err(Refusal::Directory);
    }
    access(path, Access::EXEC_OK).map_err(|_| match looks_like_program(path) {
        Some(false) => Refusal::NotProgram,
        _ => Refusal::NotExecutable(path.to_path_buf()),
    })
}

/// True if a file begins as programs and scripts do; `None` where this user cannot read it.
fn looks_like_program(path: &Path) -> Option<bool> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(4).read_to_end(&mut start).ok()?;
    Some(start.starts_with(b"#!") || start == elf::ELFMAG)
}

/// The number of scripts that may be interpreters of scripts (Linux: BINPRM recursion).
const DEPTH: usize = 4;

fn kind(path: &Path) -> Result<Kind, Refusal> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        // Programs that may be executed but not read are none of the loader's business.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Ok(Kind::Other);
        }
        Err(error) => return Err(Refusal::Unreadable(error.to_string())),
    };
    let mut start = [0; 2];
    if file.read_exact(&mut start).is_ok() && start == *b"#!" {
        return script(file, DEPTH).map(|()| Kind::Script);
    }
    let cache = ReadCache::new(file);
    let about = match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => examine::<FileHeader64<Endianness>>(&cache, 64),
        Ok(FileKind::Elf32) => examine::<FileHeader32<Endianness>>(&cache, 32),
        _ => return Ok(Kind::Other),
    };
    about.map_err(|error| Refusal::Unreadable(error.to_string()))
}

/// Follows a script to its interpreter, which must exist; past its first two bytes.
fn script(file: File, depth: usize) -> Result<(), Refusal> {
    let mut line = Vec::new();
    // Linux looks no further either.
    let read = BufReader::new(file.take(256)).read_until(b'\n', &mut line);
    read.map_err(|error| Refusal::Unreadable(error.to_string()))?;
    let mut words = line.split(|c| c.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let Some(first) = words.next() else { return Ok(()) };
    let interpreter = PathBuf::from(OsString::from_vec(first.to_vec()));
    if executable(&interpreter).is_err() {
        return Err(Refusal::NoInterpreter(interpreter));
    }
    let Ok(mut next) = File::open(&interpreter) else { return Ok(()) };
    let mut start = [0; 2];
    match next.read_exact(&mut start) {
        Ok(()) if start == *b"#!" && depth > 0 => script(next, depth - 1),
        _ => Ok(()),
    }
}

fn examine<H>(file: &ReadCache<File>, bits: usize) -> object::Result<Kind>
where
    H: FileHeader<Endian = Endianness>,
{
    let header = H::parse(file)?;
    let endian = header.endian()?;
    if header.e_machine(endian) != MACHINE
        || bits != usize::BITS as usize
        || header.is_little_endian() != cfg!(target_endian = "little")
    {
        return Ok(Kind::Foreign);
    }
    let (mut interpreter, mut rpath, mut runpath) = (None, false, false);
    for segment in header.program_headers(endian, file)? {
        if let Some(path) = segment.interpreter(endian, file)? {
            interpreter = Some(PathBuf::from(OsStr::from_bytes(path)));
        }
        for entry in segment.dynamic(endian, file)?.unwrap_or_default() {
            rpath |= entry.tag32(endian) == Some(elf::DT_RPATH);
            runpath |= entry.tag32(endian) == Some(elf::DT_RUNPATH);
        }
    }
    let Some(interpreter) = interpreter else { return Ok(Kind::Static) };
    let (own_path, rpath) = (rpath || runpath, rpath && !runpath);
    // It is looked up by the table of sections, which loaders do without, and so can this.
    let needed = needed(header, endian, file).unwrap_or_default();
    Ok(Kind::Dynamic(Dynamic { interpreter, own_path, rpath, needed }))
}

fn needed<H>(header: &H, endian: Endianness, file: &ReadCache<File>) -> object::Result<Vec<Vec<u8>>>
where
    H: FileHeader<Endian = Endianness>,
{
    let sections = header.sections(endian, file)?;
    let Some((entries, names)) = sections.dynamic(endian, file)? else { return Ok(Vec::new()) };
    let names = sections.strings(endian, file, names)?;
    let entries = entries.iter().filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED));
    let name = |entry: &H::Dyn| Some(names.get(entry.val32(endian)?).ok()?.to_vec());
    Ok(entries.filter_map(name).collect())
}

const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    elf::EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else if cfg!(target_arch = "riscv64") {
    elf::EM_RISCV
} else if cfg!(target_arch = "powerpc64") {
    elf::EM_PPC64
} else if cfg!(target_arch = "s390x") {
    elf::EM_S390
} else {
    elf::EM_NONE
};

/// The reason for which the system starts the program with more than its caller's privileges
/// (execve(2)), so that the loader trusts no variable.
fn privileges(path: &Path) -> Option<&'static str> {
    if no_new_privs().unwrap_or(false)
        || statvfs(path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID))
    {
        return None;
    }
    let about = fs::metadata(path).ok()?;
    if about.mode() & 0o4000 != 0 && about.uid() != geteuid().as_raw() {
        return Some("is setuid");
    }
    // Without the group's execute bit it stands for mandatory locks.
    if about.mode() & 0o2010 == 0o2010 && about.gid() != getegid().as_raw() {
        return Some("is setgid");
    }
    let capabilities = getxattr(path, "security.capability", &mut [0_u8; 64]);
    if capabilities.is_ok_and(|length| length > 0) && !geteuid().is_root() {
        return Some("has file capabilities");
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Kind, kind};

    #[test]
    fn this_test_is_dynamic_itself() {
        let found = kind(Path::new("/proc/self/exe")).expect("it can be read");
        let Kind::Dynamic(found) = found else { panic!("{found:?}") };
        assert!(found.needed.iter().any(|name| name.starts_with(b"libc.so")), "{found:?}");
    }
}
