// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the directories that show a device and that some process still uses.

use std::cell::OnceCell;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Result};
use std::path::Path;

use rustix::process::geteuid;

/// The variable that names a process's directory.
const VARIABLE: &[u8] = b"IWARP_SYSFS=";

/// Names the processes that this one can see: those of its PID namespace, until the machine starts
/// again. A home directory may be that of several machines and containers.
pub(super) fn scope() -> Option<String> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let mut hasher = DefaultHasher::new();
    (boot, namespace).hash(&mut hasher);
    Some(format!("{:08x}", hasher.finish() >> 32))
}

/// The use by processes that this one can see, looked at when it is first asked for.
#[derive(Default)]
pub(super) struct Usage(OnceCell<Option<Vec<Vec<u8>>>>);

impl Usage {
    /// True if a process may use the directory of that name.
    pub(super) fn covers(&self, name: &str) -> bool {
        let Some(seen) = self.0.get_or_init(look) else { return true };
        seen.iter().any(|text| contains(text, name.as_bytes()))
    }
}

/// The variable of each process, and what it has mapped, as some overwrite their environment.
/// `None` where that is not known of all processes that this user may have started.
fn look() -> Option<Vec<Vec<u8>>> {
    let mut seen = Vec::new();
    for entry in fs::read_dir("/proc").ok()? {
        let path = entry.ok()?.path();
        let is_process = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if !is_process {
            continue;
        }
        match texts(&path) {
            Ok(found) => seen.extend(found),
            // A program that root starts may become another user's, and no other can.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && geteuid().is_root() => {
                return None;
            }
            // Not this user's, or it has ended.
            Err(_) => {}
        }
    }
    Some(seen)
}

fn texts(process: &Path) -> Result<Vec<Vec<u8>>> {
    let environment = fs::read(process.join("environ"))?;
    let maps = fs::read(process.join("maps"))?;
    let variables = environment.split(|octet| *octet == 0);
    let mut found: Vec<Vec<u8>> =
        variables.filter(|one| one.starts_with(VARIABLE)).map(<[u8]>::to_vec).collect();
    let lines = maps.split(|octet| *octet == b'\n');
    found.extend(lines.filter(|line| contains(line, b"/counted/")).map(<[u8]>::to_vec));
    Ok(found)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::{Usage, scope};

    #[test]
    fn a_directory_that_nobody_names_is_not_used() {
        assert_eq!(scope(), scope());
        assert!(scope().is_none_or(|scope| scope.len() == 8));
        let usage = Usage::default();
        assert_eq!(
            usage.covers("sysfs-nobody-has-this"),
            usage.0.get().is_some_and(Option::is_none)
        );
    }
}
