//! Variables of the environment, where it can be trusted.

use std::sync::OnceLock;

/// The value of a variable. `None` where it is not set or no text, and where
/// [the environment is somebody else's](is_foreign).
pub fn variable(name: &str) -> Option<String> {
    variable_of(is_foreign(), name)
}

/// Whether the process has rights that the user who started it may not have (set-user-ID,
/// set-group-ID, file capabilities): the environment is that user's, and must not say what is done
/// with the rights. As `secure_getenv`, and the dynamic linker with variables of its own.
pub fn is_foreign() -> bool {
    static FOREIGN: OnceLock<bool> = OnceLock::new();
    // SAFETY: it has no requirements.
    *FOREIGN.get_or_init(|| unsafe { libc::getauxval(libc::AT_SECURE) } != 0)
}

fn variable_of(foreign: bool, name: &str) -> Option<String> {
    if foreign { None } else { std::env::var(name).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_elses_environment_is_not_read() {
        assert!(variable_of(false, "PATH").is_some());
        assert_eq!(variable_of(true, "PATH"), None);
        assert_eq!(variable_of(false, "IWARP_NO_SUCH_VARIABLE"), None);
    }
}
