// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running processes: those that use the library, their objects, and what they wait for.
//!
//! ```text
//!   facts      a process's answer, and what the system tells of it
//!   rates      what moves between two answers
//!   times      of requests, from post to completion
//!   tell       wishes to a process
//!   ps         the processes
//!   top        all of them on a screen, with what moves
//!   capture    their packets from now on
//!   metrics    their numbers, for Prometheus
//!   resource   their objects one by one
//!   set        settings
//!   statistic  the numbers of their queue pairs
//!   why        what waits for what, in words
//! ```

pub(crate) mod capture;
mod facts;
pub(crate) mod metrics;
pub(crate) mod ps;
mod rates;
pub(crate) mod resource;
pub(crate) mod set;
pub(crate) mod statistic;
mod tell;
mod times;
pub(crate) mod top;
pub(crate) mod why;
