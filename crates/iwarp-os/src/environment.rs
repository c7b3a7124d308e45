// SPDX-License-Identifier: MIT OR Apache-2.0

//! Variables of the environment, where it can be trusted.

use std::sync::OnceLock;

/// The value of a variable. `None` where it is not set or no text, and where
/// [another user has set the environment](is_foreign).
pub fn variable(name: &str) -> Option<String> {
    variable_of(is_foreign(), name)
}

/// The names that begin so of all variables that are set. None where
/// [another user has set the environment](is_foreign).
pub fn names(prefix: &str) -> Vec<String> {
    names_of(is_foreign(), prefix)
}

/// True if the process has rights that the user who started it may not have (set-user-ID,
/// set-group-ID, file capabilities): the environment is that user's, and must not say what is done
/// with the rights. As `secure_getenv`, and the dynamic linker with variables of its own.
pub fn is_foreign() -> bool {
    // SAFETY: it has no requirements.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// True if valgrind runs the process: it preloads a library of its own. To be called first where no
/// other thread changes the environment.
pub fn is_valgrinds() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();

    *IS.get_or_init(|| {
        std::env::var_os("LD_PRELOAD").is_some_and(|list| names_valgrind(list.as_encoded_bytes()))
    })
}

fn names_valgrind(list: &[u8]) -> bool {
    const LIBRARY: &[u8] = b"/vgpreload_";
    list.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

/// Major and minor number of the C library, where it is glibc.
#[cfg(not(target_env = "gnu"))]
pub fn glibc_version() -> Option<(u32, u32)> {
    None
}

/// Major and minor number of the C library, where it is glibc.
#[cfg(target_env = "gnu")]
pub fn glibc_version() -> Option<(u32, u32)> {
    let mut text = [0_u8; 64];
    // SAFETY: it has so much room.
    let length =
        unsafe { libc::confstr(libc::_CS_GNU_LIBC_VERSION, text.as_mut_ptr().cast(), text.len()) };
    let text = std::str::from_utf8(text.get(..length.checked_sub(1)?)?).ok()?;
    let (major, minor) = text.strip_prefix("glibc ")?.split_once('.')?;
    let minor = minor.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn names_of(foreign: bool, prefix: &str) -> Vec<String> {
    if foreign {
        return Vec::new();
    }
    let texts = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    texts.filter(|name| name.starts_with(prefix)).collect()
}

fn variable_of(foreign: bool, name: &str) -> Option<String> {
    if foreign { None } else { std::env::var(name).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_env = "gnu")]
    #[test]
    fn glibc_says_its_version() {
        assert!(glibc_version().is_some_and(|version| version >= (2, 17)));
    }

    #[test]
    fn valgrind_is_known_by_what_it_preloads() {
        assert!(names_valgrind(b"/usr/libexec/valgrind/vgpreload_core-amd64-linux.so:/a.so"));
        assert!(!names_valgrind(b"/home/a/vgpreload/b.so"));
    }

    #[test]
    fn somebody_elses_environment_is_not_read() {
        assert!(variable_of(false, "PATH").is_some());
        assert_eq!(variable_of(true, "PATH"), None);
        assert_eq!(variable_of(false, "IWARP_NO_SUCH_VARIABLE"), None);
        assert!(names_of(false, "PA").iter().any(|name| name == "PATH"));
        assert_eq!(names_of(false, "IWARP_NO_SUCH_VARIABLE"), Vec::<String>::new());
        assert_eq!(names_of(true, "PA"), Vec::<String>::new());
    }
}
