// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running processes: those that use the library, their objects, and what they wait for.
//!
//! ```text
//!   facts      a process's answer, and what the system tells of it
//!   ps         the processes
//!   capture    their packets from now on
//!   metrics    their numbers, for Prometheus
//!   resource   their objects one by one
//!   why        what waits for what, in words
//! ```

pub(crate) mod capture;
mod facts;
pub(crate) mod metrics;
pub(crate) mod ps;
pub(crate) mod resource;
pub(crate) mod why;
