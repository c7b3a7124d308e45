// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several processes of one user on one UDP port: RoCE v2 has but one, 4791, and its packets say no
//! more than an address and a queue pair number.
//!
//! ```text
//!   member     a process's share of the port: what the engine drives
//!   broker     what one of the members does for all
//!   succession which of them it is, also where one is stopped
//!   home       what a member holds: its slot, and every other's sockets
//!   numbers    queue pair numbers within a slot
//!   of_process a member as the engine drives it
//!   route      whose a message of the connection manager is
//!   protocol   what members and their broker say to each other
//!   error      why there is no share
//! ```
//!
//! A group belongs to one address and one user; that of `::` is for all addresses of IPv6 and IPv4.
//! It has sockets among which the kernel chooses by the upper bits of the destination queue pair
//! number, the *slot*: 6 bits of the first 48, 12 of up to 1,024 more, which are made when they are
//! needed ([`iwarp_os::slots::Layout`]). A member reads its own slot's, and holds all of them
//! ([`iwarp_os::slots::Vault`]), so when one is killed nothing changes for the others. QP 1, the
//! connection manager's, is in slot 0. It is read by the *broker*, which also accepts new members:
//! they find a listener, which all members have, by an abstract AF_UNIX name. Names prove nothing,
//! as every user can take them; places in a register say who is the broker, and which slots have
//! members ([`iwarp_os::register::Register`]). When the broker ends, is stopped or hangs, another
//! takes its place; packets for QP 1 wait in slot 0's socket meanwhile, and all others never pass
//! through it.
//!
//! Users trust their own processes and no others: the kernel says whose process is at the other end
//! of a connection, and lets no other user's socket have the port. A broken process of that user
//! can say what it likes to the broker, and takes its time and memory only within fixed bounds.
//!
//! No socket of the group may be closed, as the kernel would renumber the others, so all lie in the
//! vault. Up to 64 members stay connected to the broker, and those that use the connection manager;
//! others connect when they need it. The register has 64 bits for each member, which stand for its
//! services: requests for services that may be a stopped member's are not refused.

mod broker;
mod error;
mod home;
mod member;
mod numbers;
mod of_process;
mod protocol;
mod route;
mod succession;

pub use broker::Listening;
pub use error::ShareError;
pub use member::Member;
pub use protocol::Mad;
pub use route::PACKET;

/// The UDP port of RoCE v2.
pub const ROCE_PORT: u16 = iwarp_types::Path::PORT;
