// SPDX-License-Identifier: MIT OR Apache-2.0

//! The things that tests of modules have in common.

use iwarp::verbs::ProtectionDomain;
use iwarp::{Device, Options};

/// A domain of a device of its own.
pub(crate) fn domain() -> ProtectionDomain {
    Device::with_options(Options::default()).unwrap().alloc_pd()
}
