// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C API in the eyes of programs: each test runs C programs, ours or other people's, or looks at
//! the built libraries.

mod support;

mod cm_events;
mod cm_layout;
mod cm_ports;
mod cm_programs;
mod errors;
mod exports;
mod faults;
mod layout;
mod programs;
mod refusals;
