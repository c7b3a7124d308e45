// SPDX-License-Identifier: MIT OR Apache-2.0

//! Directories of this user's own, made once and used again, that programs find things in.

use std::collections::HashSet;
use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, CWD, StatVfsMountFlags, Timespec, Timestamps, UTIME_NOW, statvfs, utimensat,
};
use rustix::process::geteuid;

use super::libraries::suits_loader;
use super::usage::{self, Usage};

/// The contents of a file in such a directory.
#[derive(Hash)]
pub(super) enum Content {
    /// A symbolic link to this.
    Link(PathBuf),
    /// A regular file with this text.
    Text(String),
    /// A library of these bytes.
    Library(&'static [u8]),
    /// A file that begins as so many bytes of zero, and is written to.
    Zeros(usize),
    /// Likewise, which no other user may read.
    Private(usize),
}

/// A directory that holds just these files; a name may have folders in it.
///
/// Its own name says what it holds, so that all runs that want these files share it, and none
/// changes it while another uses it. It stays for the next time. One without libraries goes when a
/// later run finds that no process uses it, or that no run has asked for it for [`OLD`]; one with
/// libraries does not, as a program that still runs may start others.
///
/// # Errors
///
/// When there is no place where this user can have a directory that is safe from others.
pub(super) fn directory(kind: &str, files: &[(String, Content)]) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let scope = if has_libraries(files) { None } else { usage::scope() };
    let mut name = format!("{kind}-");
    name.extend(scope.map(|scope| scope + "-"));
    name += &format!("{:016x}", hasher.finish());
    let mut reasons = Vec::new();
    for base in candidates() {
        let made = own_directory(&base)
            .and_then(|()| suits(&base, files))
            .and_then(|()| filled(&base, &name, files));
        match made {
            Ok(directory) => return Ok(directory),
            Err(error) => reasons.push(format!("{}: {error:#}", base.display())),
        }
    }
    bail!(
        "no place for files of its own: {}; set XDG_RUNTIME_DIR to a directory of yours",
        reasons.join("; ")
    )
}

/// Places by preference: gone at the end of the session, the user's cache, everybody's.
fn candidates() -> Vec<PathBuf> {
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let mut all: Vec<PathBuf> = [variable("XDG_RUNTIME_DIR"), cache]
        .into_iter()
        .flatten()
        .map(|d| d.join("iwarp"))
        .collect();
    let user = UserNamespace::current().outside(geteuid().as_raw());
    all.push(Path::new(EVERYBODYS).join(format!("iwarp-{user}")));
    all.retain(|path| suits_loader(path));
    all
}

/// The place where every user may write and, by its sticky bit, none may change what is another's.
const EVERYBODYS: &str = "/tmp";

/// The users of a namespace (user_namespaces(7)): where each range begins inside and outside, and
/// its length. Empty where the system does not tell.
struct UserNamespace(Vec<[u32; 3]>);

impl UserNamespace {
    fn current() -> Self {
        let text = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let range = |line: &str| {
            let mut numbers = line.split_whitespace().map_while(|word| word.parse().ok());
            Some([numbers.next()?, numbers.next()?, numbers.next()?])
        };
        Self(text.lines().filter_map(range).collect())
    }

    /// The number of a user in the namespace around, in which it owns these files, too.
    fn outside(&self, user: u32) -> u32 {
        let range = self.0.iter().find(|[inside, _, length]| {
            user.checked_sub(*inside).is_some_and(|offset| offset < *length)
        });
        range.map_or(user, |[inside, outside, _]| (user - inside).saturating_add(*outside))
    }

    /// True if a file's owner is a user outside, root as a rule, whom the kernel shows as `owner`.
    fn is_foreign(&self, owner: u32) -> bool {
        let shown = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        let mapped = |[inside, _, length]: &[u32; 3]| {
            owner.checked_sub(*inside).is_some_and(|offset| offset < *length)
        };
        shown.trim().parse() == Ok(owner) && !self.0.is_empty() && !self.0.iter().any(mapped)
    }
}

/// Makes `base` if it is not there, and makes sure that no other user can put anything in its place
/// or into it.
fn own_directory(base: &Path) -> Result<()> {
    let parent = base.parent().context("has no parent")?;
    if !parent.exists() {
        // $HOME/.cache of a new account; never more than that (XDG base directories: mode 0700).
        DirBuilder::new().mode(0o700).create(parent).or_else(unless_there)?;
    }
    let about = fs::metadata(parent)?;
    let sticky = about.mode() & 0o1000 != 0;
    let me = geteuid().as_raw();
    let roots = about.uid() == 0
        || parent == Path::new(EVERYBODYS) && UserNamespace::current().is_foreign(about.uid());
    let trusted = roots || about.uid() == me;
    if !trusted || (about.mode() & 0o022 != 0 && !sticky) {
        bail!("others may change {}", parent.display());
    }
    DirBuilder::new().mode(0o755).create(base).or_else(unless_there)?;
    let about = fs::symlink_metadata(base)?;
    if !about.is_dir() || about.uid() != me {
        bail!("belongs to another user");
    }
    if about.mode() & 0o022 != 0 {
        bail!("others may write to it");
    }
    Ok(())
}

/// Checks that the files can be used there.
fn suits(base: &Path, files: &[(String, Content)]) -> Result<()> {
    if has_libraries(files) && statvfs(base)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        bail!("is mounted noexec");
    }
    Ok(())
}

fn has_libraries(files: &[(String, Content)]) -> bool {
    files.iter().any(|(_, content)| matches!(content, Content::Library(_)))
}

fn unless_there(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// `base/name`, made aside and moved into place whole, so that no run ever sees half of it.
fn filled(base: &Path, name: &str, files: &[(String, Content)]) -> Result<PathBuf> {
    let place = base.join(name);
    if !has_libraries(files) {
        remove_unused(base, name);
    }
    // If it cannot be touched, another run has just removed it.
    if holds(&place, files) && utimensat(CWD, &place, &NOW, AtFlags::empty()).is_ok() {
        return Ok(place);
    }
    if has_libraries(files) {
        // A program that still runs may open a library later.
        remove(base, name, |_, path| lacks_libraries(path));
    }
    let (new, old) = (aside(base, "new"), aside(base, "old"));
    let made = fill(&new, files).and_then(|()| match fs::rename(&new, &place) {
        // Another run was faster, or something tidied up inside it.
        Err(_) if holds(&place, files) => Ok(()),
        Err(_) if place.symlink_metadata().is_ok() => {
            fs::rename(&place, &old)?;
            fs::rename(&new, &place)
        }
        moved => moved,
    });
    for leftover in [new, old] {
        // Nearly always it is gone; a program that still uses the old one has its files open.
        let _ = fs::remove_dir_all(leftover);
    }
    if holds(&place, files) {
        return Ok(place);
    }
    made?;
    bail!("{} was changed meanwhile", place.display())
}

/// A directory that no run has asked for so long goes, even if a process that this run cannot see
/// uses it. A program that still runs has read what it wanted.
const OLD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A run that has asked for a directory becomes the program that uses it, which others see, sooner.
const STARTING: Duration = Duration::from_secs(60);

const NOW: Timestamps = {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
};

/// Removes the other directories of this kind that no process uses, and those that killed runs have
/// left.
fn remove_unused(base: &Path, name: &str) {
    // With the processes' scope, where it is known.
    let own = name.rsplit_once('-').map_or(name, |(start, _)| start).to_owned() + "-";
    let is_scoped = own.matches('-').count() > 1;
    let usage = Usage::default();
    remove(base, name, |found, path| {
        let older = |than| age(path).is_some_and(|age| age > than);
        let is_idle = is_scoped && found.starts_with(&own) && found != name;
        older(OLD) || is_idle && older(STARTING) && !usage.covers(found)
    });
    for aside in [".new-", ".old-"] {
        remove(base, aside, |_, path| age(path).is_some_and(|age| age > STARTING));
    }
}

/// Removes the needless directories of the kind that `name` is of. It is only a service.
fn remove(base: &Path, name: &str, is_needless: impl Fn(&str, &Path) -> bool) {
    let kind = name.split_inclusive('-').next().unwrap_or(name);
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let (found, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let is_ours = || {
            let about = fs::symlink_metadata(&path);
            about.is_ok_and(|about| about.is_dir() && about.uid() == geteuid().as_raw())
        };
        if found.starts_with(kind) && is_ours() && is_needless(&found, &path) {
            remove_whole(base, &found, |path| is_needless(&found, path));
        }
    }
}

/// Removes a directory so that no run sees half of it, unless one has asked for it meanwhile.
fn remove_whole(base: &Path, name: &str, is_needless: impl Fn(&Path) -> bool) {
    let (path, aside) = (base.join(name), aside(base, "old"));
    if fs::rename(&path, &aside).is_ok()
        && (is_needless(&aside) || fs::rename(&aside, &path).is_err())
    {
        let _ = fs::remove_dir_all(aside);
    }
}

/// A name that is not taken.
fn aside(base: &Path, what: &str) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    base.join(format!(".{what}-{}-{now}", std::process::id()))
}

/// The time since a run has asked for it last.
fn age(directory: &Path) -> Option<Duration> {
    fs::symlink_metadata(directory).ok()?.modified().ok()?.elapsed().ok()
}

/// True if the build is gone that a link of the directory points to.
fn lacks_libraries(directory: &Path) -> bool {
    let dangling = |path: &Path| {
        path.is_symlink() && fs::metadata(path).is_err_and(|e| e.kind() == ErrorKind::NotFound)
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| dangling(&entry.path()))
}

fn fill(directory: &Path, files: &[(String, Content)]) -> io::Result<()> {
    fs::create_dir(directory)?;
    // With any umask: programs that change their user must get in.
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    for (name, content) in files {
        let path = directory.join(name);
        let mut folder = directory.to_path_buf();
        for part in Path::new(name).parent().into_iter().flat_map(Path::components) {
            let Component::Normal(part) = part else { continue };
            folder.push(part);
            fs::create_dir(&folder).or_else(unless_there)?;
            fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        }
        match content {
            Content::Link(target) => symlink(target, path)?,
            // All runs see it.
            Content::Text(text) => write(&path, text.as_bytes(), 0o444)?,
            Content::Library(octets) => write(&path, octets, 0o644)?,
            Content::Zeros(octets) => write(&path, &vec![0; *octets], 0o644)?,
            Content::Private(octets) => write(&path, &vec![0; *octets], 0o600)?,
        }
    }
    Ok(())
}

fn write(path: &Path, octets: &[u8], mode: u32) -> io::Result<()> {
    fs::write(path, octets)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// True if the directory has these files as they should be, and no others.
fn holds(directory: &Path, files: &[(String, Content)]) -> bool {
    let all = files.iter().flat_map(|(name, _)| Path::new(name).ancestors());
    let is_right = |(name, content): &(String, Content)| {
        let path = directory.join(name);
        match content {
            Content::Link(target) => fs::read_link(path).is_ok_and(|to| to == *target),
            Content::Text(text) => fs::read(path).is_ok_and(|found| found == text.as_bytes()),
            Content::Library(octets) => fs::read(path).is_ok_and(|found| found == *octets),
            Content::Zeros(octets) | Content::Private(octets) => fs::symlink_metadata(path)
                .is_ok_and(|it| it.is_file() && it.len() == *octets as u64),
        }
    };
    has_only(directory, Path::new(""), &all.collect()) && files.iter().all(is_right)
}

/// True if a folder of the directory holds only wanted files.
fn has_only(directory: &Path, folder: &Path, wanted: &HashSet<&Path>) -> bool {
    let Ok(entries) = fs::read_dir(directory.join(folder)) else { return false };
    entries.into_iter().flatten().all(|entry| {
        let path = folder.join(entry.file_name());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        wanted.contains(&*path) && (!is_folder || has_only(directory, &path, wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::UserNamespace;

    #[test]
    fn users_are_known_by_their_numbers_outside() {
        let outer = UserNamespace(vec![[0, 0, u32::MAX]]);
        assert_eq!((outer.outside(0), outer.outside(1007)), (0, 1007));
        assert!(!outer.is_foreign(65534));
        let inner = UserNamespace(vec![[0, 1007, 1], [1, 100_000, 1000]]);
        assert_eq!((inner.outside(0), inner.outside(5)), (1007, 100_004));
        assert!(!inner.is_foreign(0) && !inner.is_foreign(5));
        assert_eq!(UserNamespace(Vec::new()).outside(7), 7);
    }
}
