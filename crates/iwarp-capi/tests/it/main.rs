// SPDX-License-Identifier: MIT OR Apache-2.0

//! The C API in the eyes of programs: each test runs C programs, ours or other people's, or looks
//! at the built libraries. The programs are in the folder `c`.
//!
//! The files, and the claim that each proves:
//!
//! ```text
//! Built libraries and headers
//!   exports           the libraries export what the lists say, and all that Debian's do
//!   layout            the structures of `abi` are those of the headers of libibverbs
//!   cm_layout         the structures of `cm::abi` are those of `rdma/rdma_cma.h`
//!
//! C programs
//!   programs          programs linked to the system's libibverbs run with ours
//!   cm_programs       rdmacm-utils, perftest and qperf run as they are, by rdmacm
//!   cm_events         the connection manager tells programs its events in their order
//!   cm_ports          programs listen by RDMA and by TCP under one port number
//!   check             the checker tells misuse by its rule, and accuses no right program
//!   errors            errors end as the table of docs/errors.md says
//!   faults            both ends name the access that was refused, and say what to do
//!   refusals          each refusal says why, once
//!
//! Help for these
//!   support           the built libraries, and the compiler for C programs
//!
//! c, by the connection manager
//!   cm_events.c       events come in their order
//!   cm_lifetimes.c    objects go in any order that the manual pages allow
//!   cm_steps.c        ids wait, take the program's queue pairs, options and addresses
//!   cm_daemon.c       a server that forks behind bind or listen serves in the child
//!   cm_datagrams.c    datagram services tell programs each step
//!   cm_ports.c        RDMA and TCP share a port number
//!
//! c, data
//!   data.c            each operation works, posted in each way
//!   packed.c          requests, elements and completions may lie at odd addresses
//!   datagram_data.c   messages pass between queue pairs over datagrams
//!   datagram_steps.c  they and their address handles are made, changed and refused
//!   datagram.c        they say that the port is taken, and work when it is free
//!   demand.c          memory is registered before it is there, and advised about
//!   imported.c        device memory, memory of descriptors and imported objects work
//!   unready.c         Sends wait for a receive as long as rnr_retry and the timer say
//!   unsignaled.c      requests without a completion fill no queue, unless it is strict
//!   threads.c         threads use all of one device at once
//!   event_loop.c      event loops of several processes wake each other, and miss nothing
//!
//! c, devices and events
//!   devices.c         devices that the user has named are there, with their interfaces
//!   ports.c           each port of a device has its own addresses and queue pairs
//!   addresses.c       the GID table follows the host's addresses
//!   probed.c          masks, limits and attempts show the features that the device lacks
//!   async.c           asynchronous events are told once, about the right object
//!   secure.c          a program with more rights than its user ignores that user's variables
//!   sandbox.c         a program without some system calls moves bytes, or says what failed
//!
//! c, processes and threads
//!   forking.c         a child and its parent do not disturb each other
//!   closing.c         a daemon that closes all descriptors gets nothing of ours in its files
//!   exiting.c         receives that are posted when the process exits stay so
//!   last_thread.c     the process ends with the last thread of the program
//!   cancel.c          a thread that is cancelled in a wait leaves the queue working
//!   cancelled.c       a thread whose cancellation is due goes at its next wait
//!   loading.c         the library is loaded and unloaded repeatedly
//!
//! c, ends of objects
//!   lifetimes.c       a protection domain with regions is in use, or goes first on an RNIC
//!   closed_early.c    a context that is closed first goes with the last of its objects
//!   doomed.c          a queue pair that was destroyed or reset tells nothing any more
//!   forgotten.c       destroying waits for events that were not acknowledged, and says so
//!   vanishing.c       memory that goes while it is registered kills no program
//!
//! c, mistakes
//!   codes.c           each error has its status, events and states
//!   faults.c          memory is refused in each way, for each operation
//!   refused.c         requests are refused, with their reasons
//!   mistakes.c        usual mistakes end with their number and a line
//!   spoilt.c          objects that the program has written to do no harm
//!   missing.c         functions that are only there to fail do so
//!   starved.c         a program without memory gets ENOMEM and lives
//!   traced.c          the log at its highest level has each call, request and access
//!   logged.c          lines of the log name process, time and level, as text or as JSON
//!
//! c, headers of these
//!   check.h           checks
//!   cm.h              two ids that meet
//!   misuse.h          helpers of the scenarios that the checker judges
//!   told.h            frees a program that the checker has told to wait for ever
//!   pair.h            two queue pairs of one process
//!   requests.h        one request at a time between the two
//!   scenarios.h       a program of several scenarios
//! ```

mod support;

mod check;
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
