// SPDX-License-Identifier: MIT OR Apache-2.0

//! The level of the log in a running process, for its user (`iwarp set PID log=LEVEL`).

use std::sync::OnceLock;

use crate::engine::options::Log;

/// Sets the level, where the process has a log whose level can be set.
static SETTER: OnceLock<fn(Log)> = OnceLock::new();

/// The log of this process follows `set` from now on. The first of a process counts: a program has
/// one log.
pub fn follow_log_level(set: fn(Log)) {
    let _ = SETTER.set(set);
}

/// Sets the level.
///
/// # Errors
///
/// A sentence, if this process cannot.
pub(crate) fn set_level(level: Log) -> Result<(), &'static str> {
    if level == Log::Trace {
        return Err("calls and accesses are traced from the start or not at all: start it with \
                    IWARP_LOG=trace");
    }
    let set = SETTER.get().ok_or("its log is a tracing subscriber of its own, which decides")?;
    set(level);
    Ok(())
}
