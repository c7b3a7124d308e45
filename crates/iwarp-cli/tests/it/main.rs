// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command as users run it, in processes of its own.

mod common;

mod bundled;
mod capture;
mod captured;
mod check;
mod command;
mod conform;
mod conform_verbs;
mod demo;
mod device_ports;
mod devices;
mod explain;
mod link;
mod manual;
mod netlink;
mod objects;
mod page;
mod perf;
mod rping;
mod run;
mod set;
mod shared_heap;
mod times;
mod torture;
mod why;
