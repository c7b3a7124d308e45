// SPDX-License-Identifier: MIT OR Apache-2.0

//! The number of descriptors that a process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// No program needs more descriptors than this, and some walk through all that there might be: with
/// the unlimited ones of some containers that takes minutes.
const MANY: u64 = 1 << 20;

/// Each connection is a descriptor; the usual soft limit of 1024 is for programs that select(2).
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(MANY).min(MANY);
    if limit.current.is_some_and(|current| current < most) {
        // It is only a help: the program starts without it as well.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
}
