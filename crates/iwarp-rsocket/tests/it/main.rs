// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sockets over a device of this process.

mod ends;
mod readiness;
mod streams;
mod support;
