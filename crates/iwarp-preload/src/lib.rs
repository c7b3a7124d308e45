//! Functions of libc that, with LD_PRELOAD, find an RDMA device in /sys and /dev.
//!
//! `iwarp run --sysfs` makes a tree of the files that Linux would have for the device, names it in
//! `IWARP_SYSFS`, and preloads this library. It passes every call on to libc; only a path below
//! one of [`SHOWN`] is first prefixed with the tree. Without that variable, and in programs that
//! run with privileges of others, it changes nothing. Results, and `errno` with them, are libc's.

mod functions;
mod redirect;

/// What is shown out of the tree.
pub const SHOWN: [&str; 2] = ["/sys/class/infiniband", "/dev/infiniband"];
