// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of `rdma/rdma_cma.h`.
//!
//! ```text
//!   abi, addr                   structures and addresses of C
//!   device                      the context and the protection domain that ids use by default
//!   id, route, listed           ids, as the library, programs and other processes see them
//!   carrier, groups, owner      the parts of an id
//!   create, address             ids: making, binding, resolving, destroying
//!   connect, pair               connecting, accepting, refusing, ending
//!   channel, wait               event channels, and waiting for events
//!   event, acknowledge          what the program is told
//!   qp, attr                    queue pairs of ids, and values for those of the program's own
//!   endpoint                    rdma_create_ep and its kin
//!   addrinfo, resolve_addrinfo  rdma_getaddrinfo
//!   multicast                   joining and leaving groups
//!   ports                       a port number that the program also uses for TCP
//!   option                      options, and what this device does not have
//! ```
//!
//! Ids without a channel of the program's are synchronous: each step waits for its event, and
//! leaves it in `id->event`. Such a wait is a cancellation point, so nothing may be waiting for
//! its `Drop` around it ([`iwarp_os::cancel`]).

pub mod abi;
pub mod acknowledge;
pub(crate) mod addr;
pub mod address;
pub mod addrinfo;
pub mod attr;
mod carrier;
pub mod channel;
pub mod connect;
pub mod create;
pub mod device;
pub mod endpoint;
mod event;
mod groups;
mod id;
mod listed;
pub mod multicast;
pub mod option;
mod owner;
mod pair;
mod ports;
pub mod qp;
pub mod resolve_addrinfo;
mod route;
pub mod wait;

use crate::refuse::{Errno, refuse};

/// The id has no device yet.
#[cold]
fn not_resolved() -> Errno {
    refuse!(EINVAL, "the id has no device yet: rdma_resolve_addr or rdma_bind_addr comes first")
}
